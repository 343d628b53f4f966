#pragma once
/// \file The tables, one function per block; each table_*.cpp holds those of one theme.
#include "deck/key.hpp"

namespace capstan {

Block job_table();
Block grid_table();
Block topology_table();
Block memory_table();
Block experiment_table();
Block rehearsal_table();
Block model_table();
Block moe_table();
Block scale_table();
Block batch_table();
Block data_table();
Block mixture_table();
Block optimizer_table();
Block group_table();
Block schedule_table();
Block eval_table();
Block checkpoint_table();
Block diagnostics_table();
Block health_table();

}  // namespace capstan
