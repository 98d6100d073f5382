// Loops of recurrent layers over vectors of one width. Included by one file for each instruction
// set: everything has internal linkage.
//
// A block is up to kRows rows of the batch and one vector of units, whose gates are all computed
// together: the product with the state and the cell's functions stay in registers. Each element's
// sum runs over the state in order, whatever block it is in, so that values depend neither on the
// batch nor on the threads.
#pragma once

#include "cpu/recurrent/recurrent_path.h"
#include "cpu/recurrent/vector_math.h"

namespace gt {
namespace {

using Index = std::int64_t;

// sums[r][g] += values[r] * panel[.][g], with `depth` values in a row and `stride` between rows.
template <class L, int kRows, int kGates>
[[gnu::always_inline]] inline void multiply(typename L::F (&sums)[kRows][kGates],
                                            const float* values, Index stride, const float* panel,
                                            Index depth) {
  for (Index k = 0; k < depth; ++k) {
    typename L::F weights[kGates];
    for (int g = 0; g < kGates; ++g) {
      weights[g] = L::load(panel + (k * kGates + g) * L::kCount);
    }
    for (int r = 0; r < kRows; ++r) {
      const typename L::F value = L::splat(values[r * stride + k]);
      for (int g = 0; g < kGates; ++g) {
        sums[r][g] += value * weights[g];
      }
    }
  }
}

// Position of a block's vector: `unit` in a row of `units`, with `count` lanes inside the row.
struct Place {
  Index units;
  Index unit;
  int count;

  Index at(Index row) const { return row * units + unit; }
  Index at(Index row, Index gates, Index gate) const { return (row * gates + gate) * units + unit; }
};

template <class L>
struct Lstm {
  using F = typename L::F;
  static constexpr int kGates = 4;

  // Initial value of a sum; `row` counts over all steps.
  static inline void begin(const RecurrentForward& in, const Place& place, Index row,
                           F (&sums)[kGates]) {
    for (int g = 0; g < kGates; ++g) {
      sums[g] = L::load(in.gates + place.at(row, kGates, g), place.count);
    }
  }

  static inline void end(const RecurrentForward& in, const Place& place, Index row, Index batch_row,
                         const float* /*past*/, const float* past_cell, const F (&sums)[kGates]) {
    const F enter = L::sigmoid(sums[0]);
    const F forget = L::sigmoid(sums[1]);
    const F value = L::tanh(sums[2]);
    const F leave = L::sigmoid(sums[3]);
    const F cell = forget * L::load(past_cell + place.at(batch_row), place.count) + enter * value;
    L::store(in.activations + place.at(row, 4, 0), enter, place.count);
    L::store(in.activations + place.at(row, 4, 1), forget, place.count);
    L::store(in.activations + place.at(row, 4, 2), value, place.count);
    L::store(in.activations + place.at(row, 4, 3), leave, place.count);
    L::store(in.cells + place.at(row), cell, place.count);
    L::store(in.output + place.at(row), leave * L::tanh(cell), place.count);
  }

  // `down` is the gradient of the hidden state; grad_cell holds the cell's gradient from later
  // steps.
  static inline void back(const RecurrentBackward& in, const Place& place, Index row,
                          Index batch_row, const float* /*past*/, const float* past_cell, F down) {
    const F enter = L::load(in.activations + place.at(row, 4, 0), place.count);
    const F forget = L::load(in.activations + place.at(row, 4, 1), place.count);
    const F value = L::load(in.activations + place.at(row, 4, 2), place.count);
    const F leave = L::load(in.activations + place.at(row, 4, 3), place.count);
    const F bent = L::tanh(L::load(in.cells + place.at(row), place.count));
    const F past = L::load(past_cell + place.at(batch_row), place.count);
    float* carried = in.grad_cell + place.at(batch_row);
    F cell = L::load(carried, place.count) + down * (leave * (1.0f - bent * bent));
    if (in.grad_cells != nullptr) {
      cell += L::load(in.grad_cells + place.at(row), place.count);
    }
    L::store(in.grads + place.at(row, 4, 0), cell * value * (enter * (1.0f - enter)), place.count);
    L::store(in.grads + place.at(row, 4, 1), cell * past * (forget * (1.0f - forget)), place.count);
    L::store(in.grads + place.at(row, 4, 2), cell * enter * (1.0f - value * value), place.count);
    L::store(in.grads + place.at(row, 4, 3), down * bent * (leave * (1.0f - leave)), place.count);
    L::store(carried, cell * forget, place.count);
  }

  static inline F carried(const RecurrentBackward&, const Place&, Index) { return F{}; }
};

template <class L>
struct Gru {
  using F = typename L::F;
  static constexpr int kGates = 3;

  static inline void begin(const RecurrentForward& in, const Place& place, Index row,
                           F (&sums)[kGates]) {
    for (int g = 0; g < kGates; ++g) {
      sums[g] = in.bias == nullptr ? F{} : L::load(in.bias + place.at(0, kGates, g), place.count);
    }
    for (int g = 0; g < 2; ++g) {
      sums[g] += L::load(in.gates + place.at(row, kGates, g), place.count);
    }
  }

  static inline void end(const RecurrentForward& in, const Place& place, Index row, Index batch_row,
                         const float* past, const float* /*past_cell*/, const F (&sums)[kGates]) {
    const F reset = L::sigmoid(sums[0]);
    const F update = L::sigmoid(sums[1]);
    const F given = L::load(in.gates + place.at(row, kGates, 2), place.count);
    const F value = L::tanh(given + reset * sums[2]);
    const F before = L::load(past + place.at(batch_row), place.count);
    L::store(in.activations + place.at(row, 4, 0), reset, place.count);
    L::store(in.activations + place.at(row, 4, 1), update, place.count);
    L::store(in.activations + place.at(row, 4, 2), value, place.count);
    L::store(in.activations + place.at(row, 4, 3), sums[2], place.count);
    L::store(in.output + place.at(row), (before - value) * update + value, place.count);
  }

  // Stores in grad_hidden the part that `carried` adds for the previous step.
  static inline void back(const RecurrentBackward& in, const Place& place, Index row,
                          Index batch_row, const float* past, const float* /*past_cell*/, F down) {
    const F reset = L::load(in.activations + place.at(row, 4, 0), place.count);
    const F update = L::load(in.activations + place.at(row, 4, 1), place.count);
    const F value = L::load(in.activations + place.at(row, 4, 2), place.count);
    const F state = L::load(in.activations + place.at(row, 4, 3), place.count);
    const F before = L::load(past + place.at(batch_row), place.count);
    const F of_value = down * ((1.0f - update) * (1.0f - value * value));
    const F of_reset = of_value * state * (reset * (1.0f - reset));
    const F of_update = down * (before - value) * (update * (1.0f - update));
    L::store(in.grads + place.at(row, kGates, 0), of_reset, place.count);
    L::store(in.grads + place.at(row, kGates, 1), of_update, place.count);
    L::store(in.grads + place.at(row, kGates, 2), of_value, place.count);
    L::store(in.grads_state + place.at(row, kGates, 0), of_reset, place.count);
    L::store(in.grads_state + place.at(row, kGates, 1), of_update, place.count);
    L::store(in.grads_state + place.at(row, kGates, 2), of_value * reset, place.count);
    L::store(in.grad_hidden + place.at(batch_row), down * update, place.count);
  }

  static inline F carried(const RecurrentBackward& in, const Place& place, Index batch_row) {
    return L::load(in.grad_hidden + place.at(batch_row), place.count);
  }
};

template <class L, bool kIsRelu>
struct Elman {
  using F = typename L::F;
  static constexpr int kGates = 1;

  static inline void begin(const RecurrentForward& in, const Place& place, Index row,
                           F (&sums)[kGates]) {
    sums[0] = L::load(in.gates + place.at(row), place.count);
  }

  static inline void end(const RecurrentForward& in, const Place& place, Index row, Index,
                         const float*, const float*, const F (&sums)[kGates]) {
    const F value = kIsRelu ? (sums[0] < 0.0f ? F{} : sums[0]) : L::tanh(sums[0]);
    L::store(in.output + place.at(row), value, place.count);
  }

  static inline void back(const RecurrentBackward& in, const Place& place, Index row, Index,
                          const float*, const float*, F down) {
    const F value = L::load(in.output + place.at(row), place.count);
    const F grad = kIsRelu ? (value > 0.0f ? down : F{}) : down * (1.0f - value * value);
    L::store(in.grads + place.at(row), grad, place.count);
  }

  static inline F carried(const RecurrentBackward&, const Place&, Index) { return F{}; }
};

// Calls block.template run<R>(row) for blocks of kMost rows, then for fewer, that cover [begin,
// end).
template <int kMost, class Block>
[[gnu::always_inline]] inline void each_block(Index begin, Index end, const Block& block) {
  for (; begin + kMost <= end; begin += kMost) {
    block.template run<kMost>(begin);
  }
  if constexpr (kMost > 1) {
    each_block<kMost / 2>(begin, end, block);
  }
}

inline Place place_of(Index units, Index panel, int width) {
  const Index unit = panel * width;
  return {units, unit, units - unit < width ? static_cast<int>(units - unit) : width};
}

template <class L, class Cell>
struct ForwardBlock {
  const RecurrentForward& in;
  Place place;
  const float* panel;
  const float* past;
  const float* past_cell;
  Index first_row;  // first row of the step, counted over all steps

  template <int kRows>
  inline void run(Index row) const {
    typename L::F sums[kRows][Cell::kGates];
    for (int r = 0; r < kRows; ++r) {
      Cell::begin(in, place, first_row + row + r, sums[r]);
    }
    multiply<L, kRows, Cell::kGates>(sums, past + row * place.units, place.units, panel,
                                     place.units);
    for (int r = 0; r < kRows; ++r) {
      Cell::end(in, place, first_row + row + r, row + r, past, past_cell, sums[r]);
    }
  }
};

template <class L, class Cell, int kMost>
void forward_rows(const RecurrentSizes& sizes, const RecurrentForward& in, Index begin, Index end) {
  const Index units = sizes.units;
  const Index panels = (units + L::kCount - 1) / L::kCount;
  const float* past = in.hidden;
  const float* past_cell = in.cell;
  for (Index step = 0; step < sizes.steps; ++step) {
    const Index first_row = (sizes.reverse ? sizes.steps - 1 - step : step) * sizes.rows;
    for (Index panel = 0; panel < panels; ++panel) {
      const ForwardBlock<L, Cell> block{in,
                                        place_of(units, panel, L::kCount),
                                        in.panels + panel * units * Cell::kGates * L::kCount,
                                        past,
                                        past_cell,
                                        first_row};
      each_block<kMost>(begin, end, block);
    }
    past = in.output + first_row * units;
    past_cell = in.cells == nullptr ? nullptr : in.cells + first_row * units;
  }
}

template <class L, class Cell>
struct BackwardBlock {
  const RecurrentBackward& in;
  Place place;
  const float* panel;
  const float* later;  // gradients of the next step; null at the last one
  const float* past;
  const float* past_cell;
  Index first_row;
  bool has_step;  // false after the first step: computes the gradient of the initial state

  template <int kRows>
  inline void run(Index row) const {
    const Index depth = Cell::kGates * place.units;
    typename L::F sums[kRows][1]{};
    if (later != nullptr) {
      multiply<L, kRows, 1>(sums, later + row * depth, depth, panel, depth);
    }
    for (int r = 0; r < kRows; ++r) {
      typename L::F down = sums[r][0] + Cell::carried(in, place, row + r);
      if (has_step) {
        down += L::load(in.grad + place.at(first_row + row + r), place.count);
        Cell::back(in, place, first_row + row + r, row + r, past, past_cell, down);
      } else {
        L::store(in.grad_hidden + place.at(row + r), down, place.count);
      }
    }
  }
};

template <class L, class Cell, int kMost>
void backward_rows(const RecurrentSizes& sizes, const RecurrentBackward& in, Index begin,
                   Index end) {
  const Index units = sizes.units;
  const Index panels = (units + L::kCount - 1) / L::kCount;
  const Index depth = Cell::kGates * units;
  const float* later = nullptr;
  for (Index element = begin * units; element < end * units; ++element) {
    in.grad_hidden[element] = 0;
    if (in.grad_cell != nullptr) {
      in.grad_cell[element] = 0;
    }
  }
  for (Index left = sizes.steps; left >= 0; --left) {
    const Index step = left - 1;
    const bool is_first = step <= 0;
    const Index at = sizes.reverse ? sizes.steps - 1 - step : step;
    const Index before = (sizes.reverse ? at + 1 : at - 1) * sizes.rows * units;
    for (Index panel = 0; panel < panels; ++panel) {
      const BackwardBlock<L, Cell> block{
          in,
          place_of(units, panel, L::kCount),
          in.panels + panel * depth * L::kCount,
          later,
          is_first ? in.hidden : in.output + before,
          is_first || in.cells == nullptr ? in.cell : in.cells + before,
          at * sizes.rows,
          left > 0};
      each_block<kMost>(begin, end, block);
    }
    later = in.grads_state + at * sizes.rows * depth;
  }
}

// kMost: rows in a block of four gates; a block with one sum takes eight.
template <int kWidth, class Ends, int kMost>
constexpr RecurrentPath recurrent_path_of() {
  using L = Lanes<kWidth, Ends>;
  return {kWidth,
          {forward_rows<L, Lstm<L>, kMost>, forward_rows<L, Gru<L>, kMost>,
           forward_rows<L, Elman<L, false>, 8>, forward_rows<L, Elman<L, true>, 8>},
          {backward_rows<L, Lstm<L>, 8>, backward_rows<L, Gru<L>, 8>,
           backward_rows<L, Elman<L, false>, 8>, backward_rows<L, Elman<L, true>, 8>}};
}

}  // namespace
}  // namespace gt
