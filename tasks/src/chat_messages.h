// The messages of a chat.
#pragma once

#include <nlohmann/json.hpp>

namespace rf::tasks {

constexpr const char* kContinuationWhere = "generate";

// The messages as templates read them: contents are texts, arguments of calls objects, and nothing is null. Throws
// ArgumentError.
nlohmann::ordered_json messages_of(nlohmann::ordered_json messages);

}  // namespace rf::tasks
