#pragma once
/// \file Ends of the number range as constants: device code may use a constexpr variable,
/// not the functions of std::numeric_limits.
#include <cstdint>
#include <limits>

namespace capstan {

template <class T>
inline constexpr T kLowest = std::numeric_limits<T>::lowest();
template <class T>
inline constexpr T kHighest = std::numeric_limits<T>::max();
template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

}  // namespace capstan
