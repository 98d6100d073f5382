// Table of the functions of one instruction set. Included by that set's file only.
#pragma once

#include "cpu/matmul/finish.h"
#include "cpu/matmul/matmul_path.h"
#include "cpu/matmul/pack.h"
#include "cpu/matmul/skinny.h"
#include "cpu/matmul/tile.h"

namespace gt {
namespace {

template <class T>
constexpr MatmulPath<T> matmul_path() {
  return {kTileRows,
          kTileColumns<T>,
          1,
          static_cast<int>(sizeof(T)),
          multiply_panels<T>,
          pack_panel<T>,
          finish_row<T>,
          skinny_rows<T>,
          skinny_columns<T>,
          nullptr};
}

}  // namespace
}  // namespace gt
