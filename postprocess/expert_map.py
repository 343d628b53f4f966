"""Heat map of expert load: one panel a layer, experts upwards, steps to the right."""
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

# log2: beyond a factor of 4 an expert is as good as dead, or a bottleneck.
LIMIT = 2.0


def relative_load(load):
    """log2(load / mean load of the layer) of [bins, L, E], within +-LIMIT."""
    mean = load.mean(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.log2(load / mean), -LIMIT, LIMIT)


def edges(steps):
    """Borders of the columns of the map from the last step of each."""
    first = steps[0] - (steps[1] - steps[0] if len(steps) > 1 else 1)
    return np.concatenate([[first], steps]) + 0.5


def shape_of(layers):
    """(rows, columns) of panels."""
    columns = int(np.ceil(np.sqrt(layers * 0.75))) if layers > 3 else layers
    return int(np.ceil(layers / columns)), columns


def figure(run, label):
    """The map of one run, or None where it has no load files."""
    steps, load = run.experts()
    if not len(steps):
        return None
    layers, experts = load.shape[1:]
    rows, columns = shape_of(layers)
    size = (max(6.5, 2.9 * columns + 1.2), max(3.2, 2.0 * rows + 1.0))
    picture, grid = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    shades = relative_load(load)
    for layer, axes in enumerate(grid.flat):
        if layer >= layers:
            axes.set_axis_off()
            continue
        mesh = axes.pcolormesh(
            edges(steps),
            np.arange(experts + 1) - 0.5,
            shades[:, layer, :].T,
            cmap="RdBu_r",
            vmin=-LIMIT,
            vmax=LIMIT,
            rasterized=True,
        )
        worst = load[-1, layer].max() / max(load[-1, layer].mean(), 1e-30)
        axes.set_title(f"layer {layer}: fullest {worst:.2f}x at the end", fontsize=9)
        for restart in run.restarts:
            axes.axvline(restart.step + 0.5, color="black", linewidth=0.8, linestyle="--")
    for axes in grid[:, 0]:
        axes.set_ylabel("expert")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    for column in range(columns):
        lowest = max(row for row in range(rows) if row * columns + column < layers)
        grid[lowest, column].set_xlabel("step")
        grid[lowest, column].tick_params(labelbottom=True)
    bar = picture.colorbar(mesh, ax=grid, ticks=[-2, -1, 0, 1, 2], aspect=30, pad=0.02)
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"])
    bar.set_label("load / mean load of the layer")
    marks = "; dashed: restarts" if run.restarts else ""
    text = f"{label}: load of every expert, before drops{marks}"
    picture.suptitle(text, x=0.01, ha="left", fontsize=11)
    return picture
