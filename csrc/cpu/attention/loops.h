// Table of the functions of one instruction set. Included by that set's file only.
#pragma once

#include "cpu/attention/backward.h"
#include "cpu/attention/forward.h"

namespace gt {
namespace {

constexpr AttentionPath attention_path() {
  return {kGroupMost, packed_numbers, forward_numbers, backward_numbers,
          pack_keys,  forward,        backward};
}

}  // namespace
}  // namespace gt
