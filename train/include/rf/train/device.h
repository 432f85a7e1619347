// The device of a training run. Free of torch.
#pragma once

#include <string>

namespace rf::train {

// "cpu" or "cuda:<n>" for a user's choice: "cpu"; "cuda:<n>"; "cuda", which is cuda:0, or under torchrun the GPU of
// this process, cuda:$LOCAL_RANK; "auto", which is "cuda" if PyTorch sees a GPU, else "cpu". Throws Error, which names
// `command`, for another text or a GPU that PyTorch does not see. CUDA is not initialised.
std::string resolved_device(const std::string& command, const std::string& given);

// Whether this process lacks the kernels that a run on such a device uses: they are the Python package's.
bool needs_python(const std::string& resolved);

}  // namespace rf::train
