// Runs `call`, which must throw rf::Error, and returns its message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "rf/io/error.h"

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const rf::Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no rf::Error was thrown";
  return {};
}

inline void expect_contains(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}
