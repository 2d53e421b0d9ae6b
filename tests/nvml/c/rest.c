/* Every other function that a program may look up: it is there, and not supported. A definition elsewhere wins over these. */
#define REST(name) __attribute__((weak)) int name(void) { return 3; }
#include "names.h"
