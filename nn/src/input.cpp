// Checks the inputs of a model (tokens.h). Ids, types and positions are read once and not copied.
#include <ATen/ops/aminmax.h>
#include <fmt/ranges.h>

#include <limits>
#include <string>
#include <vector>

#include "rf/io/error.h"
#include "rf/nn/positions.h"
#include "tokens.h"

namespace rf::nn {

namespace {

constexpr const char* kWhere = "input";

void check_dtype(const at::Tensor& tensor, at::ScalarType dtype, const char* name) {
  if (tensor.scalar_type() != dtype)
    fail(kWhere, "{} must be {}, got {}", name, toString(dtype), toString(tensor.scalar_type()));
}

void check_same_shape(const at::Tensor& tensor, const at::Tensor& ids_BT, const char* name) {
  if (tensor.sizes() != ids_BT.sizes()) {
    fail(kWhere, "{} must have the shape [{}] of the token ids, got [{}]", name, fmt::join(ids_BT.sizes(), ", "),
         fmt::join(tensor.sizes(), ", "));
  }
}

// Checks that every value is in first..last; the error names the first offender and its place. Values on a GPU are not
// read, because this would wait for it in each step.
void check_range(const at::Tensor& values, int64_t first, int64_t last, const char* name) {
  if (values.numel() == 0 || values.is_cuda()) return;
  const auto [low, high] = at::aminmax(values);
  if (low.item<int64_t>() >= first && high.item<int64_t>() <= last) return;
  const at::Tensor bad = values.lt(first).logical_or_(values.gt(last)).nonzero()[0];
  std::vector<int64_t> place;
  at::Tensor value = values;
  for (int64_t d = 0; d < bad.size(0); ++d) {
    place.push_back(bad[d].item<int64_t>());
    value = value[place.back()];
  }
  if (place.size() == 1) place.insert(place.begin(), 0);
  const std::string axis = place.size() > 2 ? fmt::format(", axis {}", place[2]) : "";
  fail(kWhere, "{} must be in {}..{}, got {} at row {}, column {}{}", name, first, last, value.item<int64_t>(),
       place[0], place[1], axis);
}

// In a mask that is added to scores, 0 means "attend"; read as a mask of 0 and 1 it would mean the opposite.
void check_mask(const at::Tensor& mask, const char* name) {
  if (mask.scalar_type() == at::kBool) return;
  if (!at::isIntegralType(mask.scalar_type(), false)) {
    fail(kWhere,
         "{} must be bool, or integers 0 and 1, got {}. Hint: for a mask that is added to scores, 0 and -inf, "
         "pass mask == 0; for one of 0.0 and 1.0, mask != 0",
         name, toString(mask.scalar_type()));
  }
  check_range(mask, 0, 1, name);
}

void check_positions(const Input& input) {
  const at::Tensor& given = input.positions_BT;
  const at::IntArrayRef ids = input.ids_BT.sizes(), shape = given.sizes();
  const bool is_row = shape == at::IntArrayRef{ids[1]};
  const bool has_axes =
      shape.size() == 3 && (shape[0] == 1 || shape[0] == ids[0]) && shape[1] == ids[1] && shape[2] > 0;
  if (!is_row && !has_axes) check_same_shape(given, input.ids_BT, "positions");
  check_dtype(given, at::kLong, "positions");
  check_range(given, 0, kMaxPosition, "positions");
}

void check_encoder_states(const Input& input, const ModelConfig& config, at::ScalarType dtype, int64_t kept_tokens) {
  const at::Tensor &states = input.encoder_hidden_BSC, &mask = input.encoder_mask_BS;
  const int64_t batch = input.ids_BT.size(0);
  if (!config.add_cross_attention) {
    if (states.defined() || mask.defined()) {
      fail(kWhere, "encoder states need a model with add_cross_attention, got a model without it");
    }
    return;
  }
  if (kept_tokens > 0) {
    if (states.defined() || mask.defined()) {
      fail(kWhere, "encoder states must be given at the first call with a cache only, got them again after {} tokens",
           kept_tokens);
    }
    return;
  }
  if (!states.defined()) fail(kWhere, "a model with add_cross_attention needs encoder states, got none");
  if (states.dim() != 3 || states.size(0) != batch || states.size(1) == 0 || states.size(2) != config.hidden_size) {
    fail(kWhere, "encoder states must be [{}, keys, {}] with at least one key, got [{}]", batch, config.hidden_size,
         fmt::join(states.sizes(), ", "));
  }
  const bool is_lowered = at::isReducedFloatingType(dtype) && states.scalar_type() == at::kFloat;  // by autocast
  if (!is_lowered) check_dtype(states, dtype, "encoder states");
  if (mask.defined() && (mask.dim() != 2 || mask.sizes() != states.sizes().slice(0, 2))) {
    fail(kWhere, "the encoder mask must be [{}, {}], got [{}]", batch, states.size(1), fmt::join(mask.sizes(), ", "));
  }
  if (mask.defined()) check_mask(mask, "the encoder mask");
}

}  // namespace

void check_input(const Input& input, const ModelConfig& config, at::ScalarType dtype, int64_t kept_tokens) {
  const at::Tensor& ids_BT = input.ids_BT;
  if (!ids_BT.defined() || ids_BT.dim() != 2) {
    fail(kWhere, "token ids must be [batch, tokens], got {} dimensions", ids_BT.defined() ? ids_BT.dim() : 0);
  }
  check_dtype(ids_BT, at::kLong, "token ids");
  if (ids_BT.size(1) == 0) fail(kWhere, "a sequence must have at least one token, got shape [{}, 0]", ids_BT.size(0));
  check_range(ids_BT, 0, config.vocab_size - 1, "token ids");
  if (input.mask_BT.defined()) {
    if (input.sequence_ids_BT.defined()) fail(kWhere, "segments and a mask must not be given together, got both");
    check_same_shape(input.mask_BT, ids_BT, "the mask");
    check_mask(input.mask_BT, "the mask");
  }
  if (input.types_BT.defined()) {
    check_same_shape(input.types_BT, ids_BT, "token types");
    check_dtype(input.types_BT, at::kLong, "token types");
    if (config.type_vocab_size > 0) check_range(input.types_BT, 0, config.type_vocab_size - 1, "token types");
  }
  if (input.sequence_ids_BT.defined()) {
    if (config.prefix_lm) {
      fail(kWhere, "rows of a prefix language model must be one sequence each, with a mask for padding, got segments");
    }
    check_same_shape(input.sequence_ids_BT, ids_BT, "segments");
    check_dtype(input.sequence_ids_BT, at::kInt, "segments");
    check_range(input.sequence_ids_BT, -1, std::numeric_limits<int32_t>::max(), "segments");
  }
  if (input.positions_BT.defined()) check_positions(input);
  check_encoder_states(input, config, dtype, kept_tokens);
}

void check_call(const Input& input, const ModelConfig& config, Head head, at::ScalarType dtype, int64_t num_choices,
                int64_t kept_tokens) {
  const HeadRow& row = row_of(head);
  if (num_choices < 1 || (num_choices != 1 && row.reads != HeadRow::Reads::kChoice)) {
    fail(kWhere, "num_choices must be 1 except for multiple choice, got {}", num_choices);
  }
  if (input.ids_BT.defined() && input.ids_BT.dim() == 2 && input.ids_BT.size(0) % num_choices != 0) {
    fail(kWhere, "the batch must be a multiple of the {} choices, got {}", num_choices, input.ids_BT.size(0));
  }
  check_input(input, config, dtype, kept_tokens);
}

}  // namespace rf::nn
