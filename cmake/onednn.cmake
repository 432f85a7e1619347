# oneDNN 3.2 or newer, if it is installed: as a CMake package, or from the wheels of requirements-onednn.txt in the
# environment of `python`. Defines the target rf::onednn, or leaves it undefined and prints the reason; linear layers
# then run on the product of the core. A oneDNN with another OpenMP runtime than GNU's, which core and torch share, is
# not used.
option(ROFORMER_ONEDNN "Use oneDNN for linear layers where it is found" ON)
if(NOT ROFORMER_ONEDNN)
  return()
endif()

set(onednn_version 3.2)
execute_process(
  COMMAND "${python}" -c "import sysconfig; print(sysconfig.get_path('data'))"
  OUTPUT_VARIABLE python_data OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(dnnl ${onednn_version} CONFIG QUIET)
if(NOT dnnl_FOUND)
  foreach(version IN LISTS dnnl_CONSIDERED_VERSIONS)
    message(STATUS "oneDNN ${version} is not used: ${onednn_version} or a newer 3.x is needed")
  endforeach()
  if(python_data)
    find_package(dnnl ${onednn_version} CONFIG QUIET PATHS "${python_data}/lib/cmake/dnnl" NO_DEFAULT_PATH)
  endif()
endif()
if(NOT dnnl_FOUND)
  message(STATUS "No oneDNN: linear layers run on the product of the core")
  return()
endif()

get_target_property(onednn_library DNNL::dnnl LOCATION)
cmake_path(GET onednn_library PARENT_PATH onednn_library_dir)
# A library from a Python environment (CMake also searches an activated one) or from the checkout is installed with
# ours.
set(onednn_bundled)
foreach(place IN ITEMS "${python_data}" "${PROJECT_SOURCE_DIR}")
  cmake_path(IS_PREFIX place "${onednn_library}" NORMALIZE inside)
  if(place AND inside AND NOT place MATCHES "^/usr(/local)?$")
    set(onednn_bundled "${onednn_library_dir}/libdnnl.so.${dnnl_VERSION_MAJOR}")
  endif()
endforeach()
file(STRINGS "${onednn_library}" other_openmp REGEX "^libi?omp5?\\.so" LIMIT_COUNT 1)
if(other_openmp OR NOT DNNL_CPU_RUNTIME STREQUAL "OMP")
  message(STATUS "oneDNN ${dnnl_VERSION} in ${dnnl_DIR} is not used: it runs on ${DNNL_CPU_RUNTIME} ${other_openmp}, not GNU OpenMP")
  return()
endif()
message(STATUS "oneDNN ${dnnl_VERSION} in ${dnnl_DIR}")
add_library(rf_onednn INTERFACE)
add_library(rf::onednn ALIAS rf_onednn)
target_link_libraries(rf_onednn INTERFACE DNNL::dnnl)
