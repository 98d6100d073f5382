#include "cpu/chain.h"

#include <algorithm>
#include <stdexcept>

#include "core/message.h"
#include "core/pool.h"

namespace gt {
namespace {

// A block of the result stays in the first-level cache from step to step.
constexpr std::int64_t kBlock = 2048;
// Elements in one task: a few us for each step.
constexpr std::int64_t kTogether = 16 * 1024;

// Ways in which a tensor is broadcast over the result.
enum class Form { kOther, kSame, kOne, kRow, kColumn };

struct Repeated {
  Form form;
  std::int64_t columns;  // length of a row, or number of columns that share a number
};

Repeated repeated(const TensorView& tensor, const TensorView& out) {
  if (tensor.rank > out.rank || !tensor.is_contiguous()) {
    return {Form::kOther, 0};
  }
  // Runs of dims that the tensor has, and of dims that it is broadcast over, from the last dim on.
  bool has_last = false;
  bool had = false;
  int runs = 0;
  std::int64_t columns = 1;
  for (int dim = 1; dim <= out.rank; ++dim) {
    const std::int64_t size = out.size(-dim);
    const std::int64_t own = dim <= tensor.rank ? tensor.size(-dim) : 1;
    if (own != size && own != 1) {
      return {Form::kOther, 0};
    }
    if (size == 1) {
      continue;
    }
    const bool has = own == size;
    if (runs == 0 || has != had) {
      ++runs;
    }
    if (runs == 1) {
      has_last = has;
      columns *= size;
    }
    had = has;
  }
  if (runs > 2) {
    return {Form::kOther, 0};
  }
  if (runs < 2) {
    return {runs == 0 || has_last ? Form::kSame : Form::kOne, 0};
  }
  return {has_last ? Form::kRow : Form::kColumn, columns};
}

bool is_known(Element element) {
  return element == Element::kFloat32 || element == Element::kBool || element == Element::kInt32 ||
         element == Element::kInt64;
}

bool is_condition(LoopOperator op, int side) { return op == LoopOperator::Where && side == 0; }

// True where a step's operands fit, with rows of `columns` elements, or of any length where that is
// 0.
bool fits(const TensorView& out, const ChainStep& step, bool is_first, std::int64_t& columns) {
  for (int side = 0; side < operands_of(step.op); ++side) {
    const ChainOperand& operand = step.operands[side];
    const bool is_tensor = operand.kind == ChainOperand::Kind::kTensor;
    if (operand.kind == ChainOperand::Kind::kResult && is_first) {
      return false;
    }
    if (is_condition(step.op, side) && !(is_tensor && operand.tensor.element == Element::kBool)) {
      return false;
    }
    if (!is_tensor) {
      continue;
    }
    if (!is_known(operand.tensor.element)) {
      return false;
    }
    const Repeated found = repeated(operand.tensor, out);
    if (found.form == Form::kOther ||
        (found.columns != 0 && columns != 0 && found.columns != columns)) {
      return false;
    }
    columns = found.columns != 0 ? found.columns : columns;
  }
  return true;
}

using Cast = void (*)(const void* from, float* out, std::size_t count);

Cast cast_of(Element element) {
  const ChainCasts& casts = array_path().chain_casts;
  switch (element) {
    case Element::kBool:
      return casts.of_bools;
    case Element::kInt32:
      return casts.of_int32;
    case Element::kInt64:
      return casts.of_int64;
    case Element::kUint32:
    case Element::kUint8:
    case Element::kInt8:
    case Element::kInt16:
    case Element::kBfloat16:
    case Element::kFloat16:
    case Element::kFloat32:
    case Element::kFloat64:
      break;
  }
  return nullptr;
}

// An operand in the form that the loops take, with its position in a row; steps count elements.
struct Side {
  const char* data = nullptr;  // nullptr: the result
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;
  std::int64_t bytes = sizeof(float);
  Cast cast = nullptr;

  // `width` elements from `column` on: in place, or converted into `scratch`.
  ChainSide at(std::int64_t row, std::int64_t column, std::size_t width, const float* result,
               float* scratch) const {
    if (data == nullptr) {
      return {result, false};
    }
    const char* place = data + (row * row_step + column * column_step) * bytes;
    if (cast == nullptr) {
      return {reinterpret_cast<const float*>(place), column_step == 0};
    }
    cast(place, scratch, column_step == 0 ? 1 : width);
    return {scratch, column_step == 0};
  }
};

Side side_of(const ChainStep& step, int place, const TensorView& out, std::int64_t columns) {
  const ChainOperand& operand = step.operands[place];
  if (operand.kind == ChainOperand::Kind::kResult) {
    return {};
  }
  if (operand.kind == ChainOperand::Kind::kNumber) {
    return {reinterpret_cast<const char*>(&operand.number)};
  }
  Side side{static_cast<const char*>(operand.tensor.data)};
  side.bytes = static_cast<std::int64_t>(element_bytes(operand.tensor.element));
  side.cast = is_condition(step.op, place) ? nullptr : cast_of(operand.tensor.element);
  const Form form = repeated(operand.tensor, out).form;
  side.row_step = form == Form::kSame ? columns : form == Form::kColumn ? 1 : 0;
  side.column_step = form == Form::kSame || form == Form::kRow ? 1 : 0;
  return side;
}

constexpr int kSides = 3;

struct Step {
  ChainLoop loop;
  int operands;
  Side sides[kSides];
};

// A thread's blocks in the first-level cache: converted operands, and a result that becomes bools.
struct Scratch {
  alignas(64) float sides[kSides][kBlock];
  alignas(64) float result[kBlock];
};

// Number of steps that fit, and the length of a row; of the whole result where no operand is
// broadcast.
struct Fitting {
  int steps = 0;
  std::int64_t columns = 0;
};

Fitting fitting(const TensorView& out, const ChainStep* steps, int count) {
  const bool has_kind = out.element == Element::kFloat32 || out.element == Element::kBool;
  Fitting found;
  if (!has_kind || out.is_empty() || !out.is_contiguous()) {
    return found;
  }
  const int most = std::min(count, kChainSteps);
  std::int64_t columns = 0;
  while (found.steps < most && fits(out, steps[found.steps], found.steps == 0, columns)) {
    found = {found.steps + 1, columns};
  }
  if (found.columns == 0) {
    found.columns = out.elements();
  }
  return found;
}

void run(const TensorView& out, const ChainStep* steps, const Fitting& found, int threads) {
  const int count = found.steps;
  const std::int64_t columns = found.columns;
  const std::int64_t all = out.elements();
  Step made[kChainSteps];
  for (int at = 0; at < count; ++at) {
    made[at].loop = array_path().chain[static_cast<std::size_t>(steps[at].op)];
    made[at].operands = operands_of(steps[at].op);
    for (int side = 0; side < made[at].operands; ++side) {
      made[at].sides[side] = side_of(steps[at], side, out, columns);
    }
  }
  const auto to_bools = array_path().chain_casts.to_bools;
  const bool is_float = out.element == Element::kFloat32;
  const auto compute = [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    Scratch scratch;
    for (std::int64_t column = begin; column < end; column += kBlock) {
      const std::int64_t place = row * columns + column;
      const auto width = static_cast<std::size_t>(std::min(kBlock, end - column));
      float* block = is_float ? static_cast<float*>(out.data) + place : scratch.result;
      for (int at = 0; at < count; ++at) {
        ChainSide sides[kSides];
        for (int side = 0; side < made[at].operands; ++side) {
          sides[side] = made[at].sides[side].at(row, column, width, block, scratch.sides[side]);
        }
        made[at].loop(sides, block, width);
      }
      if (!is_float) {
        to_bools(block, static_cast<std::uint8_t*>(out.data) + place, width);
      }
    }
  };
  if (columns >= kTogether) {
    const std::int64_t parts = (columns + kTogether - 1) / kTogether;
    run_tasks(all / columns * parts, threads, [&](std::int64_t task) {
      const std::int64_t begin = task % parts * kTogether;
      compute(task / parts, begin, std::min(begin + kTogether, columns));
    });
    return;
  }
  const std::int64_t rows = all / columns;
  const std::int64_t together = kTogether / columns;
  run_tasks((rows + together - 1) / together, threads, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * together, rows);
    for (std::int64_t row = task * together; row < end; ++row) {
      compute(row, 0, columns);
    }
  });
}

}  // namespace

int fitting_chain(const TensorView& out, const ChainStep* steps, int count, int least,
                  int threads) {
  const Fitting found = fitting(out, steps, count);
  if (found.steps < std::max(least, 1)) {
    return 0;
  }
  run(out, steps, found, threads);
  return found.steps;
}

void chain(const TensorView& out, const ChainStep* steps, int count, int threads) {
  const Fitting found = fitting(out, steps, count);
  if (count < 1 || found.steps < count) {
    throw std::invalid_argument(message("chain: of ", count, " steps ", found.steps, " fit"));
  }
  run(out, steps, found, threads);
}

}  // namespace gt
