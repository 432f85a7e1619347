// The HTTP front of roformer serve, without its process.
#pragma once

#include <string>
#include <string_view>

namespace rf::fuzz {

// What a server of this model sends to a client that sends `bytes` and then no more.
std::string served(const std::string& model_dir, std::string_view bytes);

}  // namespace rf::fuzz
