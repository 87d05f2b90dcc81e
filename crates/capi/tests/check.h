/* What the C tests share: a check that prints its line and ends the process. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringfold.h>

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__,       \
                    __LINE__, #condition, ringfold_last_error());                        \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

/* Checks that a call has this result, and that an error has a message with this text. */
#define EXPECT(result, text, call)                                                       \
    do {                                                                                 \
        enum ringfold_result found_ = (call);                                            \
        if (found_ != (result) || !strstr(ringfold_last_error(), (text))) {              \
            fprintf(stderr, "%s:%d: %s: %s, not %s; last error: %s\n", __FILE__,         \
                    __LINE__, #call, ringfold_result_name(found_),                       \
                    ringfold_result_name(result), ringfold_last_error());                \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

#define OK(call) EXPECT(RINGFOLD_SUCCESS, "", call)

#endif
