#include "cpu/comparisons.h"

#include <algorithm>

#include "core/pool.h"

namespace gt {
namespace {

// Elements in one task, which takes about 5 us.
constexpr std::size_t kTogether = 32 * 1024;

template <class T>
void run(const Comparisons<T>& loops, Comparison kind, const Compared<T>& arrays, int threads) {
  const auto loop = loops.of[static_cast<std::size_t>(kind)];
  const std::size_t tasks = (arrays.count + kTogether - 1) / kTogether;
  run_tasks(static_cast<std::int64_t>(tasks), threads, [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * kTogether;
    loop(arrays.x + begin, arrays.is_one ? arrays.y : arrays.y + begin, arrays.is_one,
         arrays.out + begin, std::min(kTogether, arrays.count - begin));
  });
}

}  // namespace

void compare(Comparison kind, const Compared<std::int32_t>& arrays, int threads) {
  run(array_path().compare_int32, kind, arrays, threads);
}

void compare(Comparison kind, const Compared<std::int64_t>& arrays, int threads) {
  run(array_path().compare_int64, kind, arrays, threads);
}

}  // namespace gt
