# A file as a C string: cmake -DINPUT=FILE -DOUTPUT=HEADER -DNAME=VARIABLE -P embed.cmake
# SPDX-License-Identifier: MIT
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}") # 16 bytes a line
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "static const char ${NAME}[] = {\n${bytes}0};\n")
