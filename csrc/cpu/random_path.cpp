// Which instruction set makes the random numbers. No arithmetic here.
#include "cpu/random_path.h"

#include <atomic>
#include <stdexcept>

#include "core/message.h"

namespace gt {
namespace {

std::vector<const RandomPath*> available_paths() {
  std::vector<const RandomPath*> paths;
  for (const RandomPath* path : {scalar_random_path(), avx2_random_path(), avx512_random_path()}) {
    if (path != nullptr) {
      paths.push_back(path);
    }
  }
  return paths;
}

// One word that all threads read; a change shows in calls that start after it.
std::atomic<const RandomPath*>& chosen_path() {
  static std::atomic<const RandomPath*> path{available_paths().back()};
  return path;
}

}  // namespace

const RandomPath& random_path() { return *chosen_path().load(std::memory_order_relaxed); }

std::vector<std::string> random_path_names() {
  std::vector<std::string> names;
  for (const RandomPath* path : available_paths()) {
    names.emplace_back(path->name);
  }
  return names;
}

void choose_random_path(const std::string& name) {
  const std::vector<const RandomPath*> paths = available_paths();
  const RandomPath* choice = name == "auto" ? paths.back() : nullptr;
  for (const RandomPath* path : paths) {
    choice = name == path->name ? path : choice;
  }
  if (choice == nullptr) {
    std::string names = "auto";
    for (const RandomPath* path : paths) {
      names += message(", ", path->name);
    }
    throw std::invalid_argument(
        message("set_path: '", name, "' is not available here, choose from ", names));
  }
  chosen_path().store(choice, std::memory_order_relaxed);
}

}  // namespace gt
