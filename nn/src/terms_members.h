// Every member of Terms that is a tensor or made of tensors, by its name: for code that treats them alike.
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/ops/terms.h"

namespace rf::nn {

template <typename T>
struct TermsMember {
  const char* name;
  T ops::Terms::*at;
};

inline constexpr TermsMember<ops::Rotation> kRotationMembers[] = {
    {"query", &ops::Terms::query}, {"key", &ops::Terms::key}, {"value", &ops::Terms::value}};

inline constexpr TermsMember<ops::DistanceTable> kTableMembers[] = {{"key_table", &ops::Terms::key_table},
                                                                    {"query_table", &ops::Terms::query_table},
                                                                    {"value_table", &ops::Terms::value_table},
                                                                    {"bias", &ops::Terms::bias},
                                                                    {"gate", &ops::Terms::gate}};

inline constexpr TermsMember<at::Tensor> kTensorMembers[] = {{"content_bias", &ops::Terms::content_bias_HD},
                                                             {"position_bias", &ops::Terms::position_bias_HD},
                                                             {"position_query", &ops::Terms::position_query_HPD},
                                                             {"position_key", &ops::Terms::position_key_HPD},
                                                             {"reset_row", &ops::Terms::reset_row_H},
                                                             {"reset_col", &ops::Terms::reset_col_H}};

}  // namespace rf::nn
