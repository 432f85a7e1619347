// The page for people, page.html, which the build makes a part of the program.
#pragma once

#include <string_view>

namespace rf::server {

extern const std::string_view kPage;

}  // namespace rf::server
