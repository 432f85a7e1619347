# The Python whose packages the build uses: `python`, empty if there is no Python.
set(ROFORMER_PYTHON "" CACHE FILEPATH "A Python with torch 2.11 to 2.15; empty: .venv, or the one on the path")
set(python "${ROFORMER_PYTHON}")
if(NOT python AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
elseif(NOT python)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(python "${Python3_EXECUTABLE}")
endif()
