/* CHECK(condition): ends the program, with the place, if it does not hold. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);  \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* Whether a text that the caller has to free is as expected; frees it. */
static inline int is_text(char *text, const char *expected)
{
    int is_same = text && strcmp(text, expected) == 0;
    if (!is_same)
        fprintf(stderr, "found `%s`, expected `%s`\n", text ? text : "NULL", expected);
    free(text);
    return is_same;
}

#endif
