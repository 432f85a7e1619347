// Asks the model itself (readable_length.h).
#include "readable_length.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "rf/io/error.h"

namespace rf::train {

std::string why_too_long(nn::Model& model, int64_t tokens) {
  const c10::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  nn::Input input;
  input.ids_BT = at::zeros({1, tokens}, at::kLong);
  std::string reason;
  try {
    model.encode(input);
  } catch (const Error& error) {
    reason = error.what();
  }
  model.train(was_training);
  return reason;
}

}  // namespace rf::train
