// A file of tensors.
#include "rf/io/safetensors.h"

#include "memory_directory.h"
#include "rf/io/error.h"
#include "target_functions.h"

namespace rf::fuzz {

void safetensors(std::string_view bytes) {
  static const MemoryDirectory directory;
  directory.put("model.safetensors", bytes);
  try {
    const io::SafetensorsFile file(directory.path() + "/model.safetensors");
    size_t data = 0;
    unsigned sum = 0;
    for (const io::TensorView& tensor : file.tensors()) {
      check(file.find(tensor.name) == &tensor);
      for (const std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
      data += tensor.data.size();
    }
    check(data <= bytes.size() && sum <= 255 * data);
  } catch (const Error&) {
  }
}

}  // namespace rf::fuzz
