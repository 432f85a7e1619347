# The one place that looks for torch. The wheel's own TorchConfig.cmake sets global flags and wants a CUDA toolkit when
# the wheel is a CUDA one; the CPU product needs four libraries and two include directories, taken here directly.
include(cmake/torch_probe.cmake)
if(torch_problem)
  message(FATAL_ERROR "${torch_problem}; run scripts/setup.sh, or set ROFORMER_PYTHON to a Python that has torch ${torch_versions}\n${torch_error}")
endif()
message(STATUS "torch ${ROFORMER_TORCH_VERSION} in ${torch_root}")

add_library(rf_torch INTERFACE)
add_library(rf::torch ALIAS rf_torch)
target_include_directories(rf_torch SYSTEM INTERFACE ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_link_directories(rf_torch INTERFACE ${torch_root}/lib)
target_link_libraries(rf_torch INTERFACE torch torch_cpu c10 fmt::fmt)
# torch carries headers of its own fmt, which come before the system's here, and nowhere its compiled half.
target_compile_definitions(rf_torch INTERFACE FMT_HEADER_ONLY)
# Operators register themselves when the library loads; the linker must not drop it for want of a symbol.
target_link_options(rf_torch INTERFACE -Wl,--no-as-needed)
list(APPEND CMAKE_BUILD_RPATH ${torch_root}/lib)

# The headers that most files of the modules with torch include, parsed only once, because they take the compiler ten
# seconds or more. ccache needs the option, and the sloppiness in the preset. Its other settings let a checkout use
# what another one compiled, except unity sources, which include by absolute paths.
file(CONFIGURE OUTPUT torch_headers.cpp CONTENT "")
add_library(rf_torch_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp)
target_link_libraries(rf_torch_headers PRIVATE rf_warnings rf_torch)
target_compile_options(rf_torch_headers PRIVATE -fpch-preprocess "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-subobject-linkage>")
target_precompile_headers(rf_torch_headers PRIVATE <ATen/ATen.h> <fmt/format.h> <nlohmann/json.hpp>
  <torch/csrc/autograd/VariableTypeUtils.h> <torch/csrc/autograd/custom_function.h> <torch/library.h> <torch/nn/module.h>)
# These modules call operators, and -O2 compiles in four fifths of the time; files with loops over pairs of tokens set -O3.
function(rf_use_torch_headers target)
  target_precompile_headers(${target} REUSE_FROM rf_torch_headers)
  target_compile_options(${target} PRIVATE -fpch-preprocess $<$<CONFIG:Release>:-O2>)
endfunction()
