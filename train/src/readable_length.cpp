// Tries the model's position encoding (readable_length.h).
#include "readable_length.h"

#include "rf/io/error.h"

namespace rf::train {

std::string why_too_long(const nn::Model& model, int64_t tokens) {
  try {
    model.check_length(tokens);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace rf::train
