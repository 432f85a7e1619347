# Apache Arrow's Parquet reader, if it is installed: as a CMake package, or inside the package pyarrow of `python`.
# Defines the target rf::parquet, or silently leaves it undefined.
option(ROFORMER_PARQUET "Read and write Parquet where Apache Arrow is found" ON)
if(NOT ROFORMER_PARQUET)
  return()
endif()
find_package(Parquet CONFIG QUIET)
if(TARGET Parquet::parquet_shared)
  add_library(rf_parquet INTERFACE)
  add_library(rf::parquet ALIAS rf_parquet)
  target_link_libraries(rf_parquet INTERFACE Parquet::parquet_shared)
  return()
endif()

execute_process(
  COMMAND "${python}" -c "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])"
  OUTPUT_VARIABLE pyarrow_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE pyarrow_rc)
if(NOT pyarrow_rc EQUAL 0)
  return()
endif()
# Its libraries only have names with a version. Ninja does not track -l options as files, so after an upgrade of the
# package the linker reports the missing file, and a new configuration finds it.
file(GLOB pyarrow_libraries RELATIVE "${pyarrow_root}" "${pyarrow_root}/libparquet.so.*" "${pyarrow_root}/libarrow.so.*")
list(LENGTH pyarrow_libraries count)
if(NOT count EQUAL 2 OR NOT EXISTS "${pyarrow_root}/include/parquet/api/reader.h")
  return()
endif()
list(TRANSFORM pyarrow_libraries PREPEND "-l:")
add_library(rf_parquet INTERFACE)
add_library(rf::parquet ALIAS rf_parquet)
target_include_directories(rf_parquet SYSTEM INTERFACE "${pyarrow_root}/include")
target_link_directories(rf_parquet INTERFACE "${pyarrow_root}")
target_link_libraries(rf_parquet INTERFACE ${pyarrow_libraries})
list(APPEND CMAKE_BUILD_RPATH "${pyarrow_root}")
# Under these names they are installed beside ours.
set(arrow_bundled ${pyarrow_libraries})
list(TRANSFORM arrow_bundled REPLACE "^-l:" "${pyarrow_root}/")
