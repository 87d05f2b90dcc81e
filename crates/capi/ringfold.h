/* ringfold: collective communication, for C.
 *
 * crates/capi/header writes this file from the sources of the library. docs/c.md is the guide.
 * Every function returns enum ringfold_result, but for the version and for texts. No function
 * throws. Handles are checked: one that is NULL or freed gives RINGFOLD_ERROR_HANDLE. */

#ifndef RINGFOLD_H
#define RINGFOLD_H

#include <stddef.h>
#include <stdint.h>

// The version of this header: `major`.
#define RINGFOLD_VERSION_MAJOR 0

// The version of this header: `minor`.
#define RINGFOLD_VERSION_MINOR 1

// The version of this header: `patch`.
#define RINGFOLD_VERSION_PATCH 0

// The version of this header as one number. Functions that begin something take it first, and
// refuse the version of a header that does not fit the library.
#define RINGFOLD_VERSION (((RINGFOLD_VERSION_MAJOR * 1000000) + (RINGFOLD_VERSION_MINOR * 1000)) + RINGFOLD_VERSION_PATCH)

// The color of a rank that takes no part in any group of ringfold_comm_split. Every negative color
// means this.
#define RINGFOLD_NO_COLOR -1

// The bytes of a unique id, with the zero at its end.
#define RINGFOLD_UNIQUE_ID_BYTES 256

// The bytes of the name of an operation or an algorithm, with the zero at its end.
#define RINGFOLD_NAME_BYTES 32

// The result of the callback `get` of a key-value store for a key without a value.
#define RINGFOLD_STORE_NO_VALUE 1

// The source of a receive that takes a message of any other rank.
#define RINGFOLD_ANY_SOURCE UINT32_MAX

// The tag of a receive that takes a message with any tag.
#define RINGFOLD_ANY_TAG UINT32_MAX

// The result of a function.
typedef enum ringfold_result {
    // The function has done its work.
    RINGFOLD_SUCCESS = 0,
    // An argument is invalid. Nothing was sent, and the communicator remains usable.
    RINGFOLD_ERROR_ARGUMENT = 1,
    // A handle is NULL, was freed, or was never made.
    RINGFOLD_ERROR_HANDLE = 2,
    // The job has failed. All surviving ranks get the same cause, and all later calls on the
    // communicator return the same result. Output buffers have undefined contents.
    RINGFOLD_ERROR_FAILED = 3,
    // The job has failed, and this rank learned it only when it freed the communicator.
    RINGFOLD_ERROR_LEAVE = 4,
    // This process is a child that fork has made. Only its parent may use the communicator.
    RINGFOLD_ERROR_FORKED = 5,
    // The ranks could not make a group of a communicator, which remains usable.
    RINGFOLD_ERROR_GROUP = 6,
    // A variable of the environment has an invalid value.
    RINGFOLD_ERROR_CONFIG = 7,
    // The ranks could not make a communicator.
    RINGFOLD_ERROR_INIT = 8,
    // The program was compiled with the header of a version that does not fit the library.
    RINGFOLD_ERROR_VERSION = 9,
    // A defect of ringfold. The communicator of the call has failed.
    RINGFOLD_ERROR_INTERNAL = 10,
    // A message is longer than the buffer of the receive that takes it. The message stays for a
    // later receive, and the communicator remains usable.
    RINGFOLD_ERROR_TRUNCATED = 11,
    // The survivors of a failure could not make a communicator: too few have come, or the others
    // have left this rank out.
    RINGFOLD_ERROR_REGROUP = 12,
} ringfold_result;

// The data type of an element.
typedef enum ringfold_type {
    // Signed 8-bit integer.
    RINGFOLD_INT8 = 0,
    // Unsigned 8-bit integer.
    RINGFOLD_UINT8 = 1,
    // Signed 32-bit integer.
    RINGFOLD_INT32 = 2,
    // Unsigned 32-bit integer.
    RINGFOLD_UINT32 = 3,
    // Signed 64-bit integer.
    RINGFOLD_INT64 = 4,
    // Unsigned 64-bit integer.
    RINGFOLD_UINT64 = 5,
    // IEEE 754 binary16.
    RINGFOLD_FLOAT16 = 6,
    // bfloat16: the upper half of a float.
    RINGFOLD_BFLOAT16 = 7,
    // IEEE 754 binary32: float.
    RINGFOLD_FLOAT32 = 8,
    // IEEE 754 binary64: double.
    RINGFOLD_FLOAT64 = 9,
    // 8-bit float with 4 exponent bits and without infinity (OCP E4M3).
    RINGFOLD_FLOAT8_E4M3 = 10,
    // 8-bit float with 5 exponent bits (OCP E5M2).
    RINGFOLD_FLOAT8_E5M2 = 11,
} ringfold_type;

// A predefined reduction operation.
typedef enum ringfold_op {
    // Sum. Integers wrap.
    RINGFOLD_SUM = 0,
    // Product. Integers wrap.
    RINGFOLD_PROD = 1,
    // Smallest element. A NaN anywhere gives NaN.
    RINGFOLD_MIN = 2,
    // Largest element. A NaN anywhere gives NaN.
    RINGFOLD_MAX = 3,
    // Sum divided by the number of ranks. Integers truncate toward zero.
    RINGFOLD_AVG = 4,
    // Bitwise and. For integers only, as all operations below.
    RINGFOLD_BAND = 6,
    // Bitwise or.
    RINGFOLD_BOR = 7,
    // Bitwise exclusive or.
    RINGFOLD_BXOR = 8,
    // 1 if all are not 0, and otherwise 0. A group of one keeps its value.
    RINGFOLD_LAND = 9,
    // 1 if any is not 0, and otherwise 0.
    RINGFOLD_LOR = 10,
    // 1 if an odd number is not 0, and otherwise 0.
    RINGFOLD_LXOR = 11,
} ringfold_op;

// A communicator. It has no definition: a handle is a number, and the library checks it.
typedef struct ringfold_comm ringfold_comm;

// A registration. It has no definition: a handle is a number, and the library checks it.
typedef struct ringfold_registration ringfold_registration;

// A request. It has no definition: a handle is a number, and the library checks it.
typedef struct ringfold_request ringfold_request;

// A window. It has no definition: a handle is a number, and the library checks it.
typedef struct ringfold_window ringfold_window;

// A reduction operation: one of enum ringfold_op, or one that ringfold_op_create_pre_mul_sum or
// ringfold_op_create made.
typedef uint64_t ringfold_op_t;

// The handle of a communicator, or of a group of its calls, which ringfold_group_start makes.
// Several threads may use it; their calls follow one another.
typedef struct ringfold_comm *ringfold_comm_t;

// The id of a group of ranks that start without a launcher, as a line of text. It holds the secret
// of the group, so only the ranks may see it.
typedef struct ringfold_unique_id {
    // The text, with a zero at its end.
    char text[RINGFOLD_UNIQUE_ID_BYTES];
} ringfold_unique_id;

// The handle of a request: a collective that was started. Any thread may use it.
typedef struct ringfold_request *ringfold_request_t;

// A key-value store that all ranks of a group share. The library calls its functions in the thread
// that calls ringfold_init_with_store. They return 0 if they succeed. They must return: no C++
// exception and no longjmp may leave them.
typedef struct ringfold_store {
    // The first argument of each function.
    void *context;
    // Stores a value under a key, in place of an earlier value.
    int (*set)(void *context, const char *key, const void *value, size_t length);
    // Writes the value of a key, of at most `capacity` bytes, and its length. Returns
    // RINGFOLD_STORE_NO_VALUE if no rank has set the key. Does not wait.
    int (*get)(void *context, const char *key, void *value, size_t capacity, size_t *length);
    // Waits until a rank has set the key, for at most `timeout_ms`, and then does as `get`.
    int (*wait)(void *context,
                const char *key,
                uint64_t timeout_ms,
                void *value,
                size_t capacity,
                size_t *length);
} ringfold_store;

// The function of an operation of the program. It combines each of `count` elements of `into` with
// the element at the same place of `from`, and leaves the result in `into`. `into` may have the
// alignment of the output of the call, and `from` has that of 64 bytes and whole elements. Any
// thread that calls ringfold_all_reduce_by may call it. It returns 0, or another number if it
// failed. It must return: no C++ exception and no longjmp may leave it. Functions of ringfold
// that it calls return RINGFOLD_ERROR_ARGUMENT, except for versions and texts.
typedef int (*ringfold_combine_t)(void *context, void *into, const void *from, size_t count);

// A message that was received, or that waits for its receive.
typedef struct ringfold_message {
    // Its sender.
    uint32_t source;
    // Its tag.
    uint32_t tag;
    // Its length in bytes.
    size_t bytes;
} ringfold_message;

// Calls of one kind in a profile: of one operation and one algorithm, with sizes up to the same
// power of two. All times are sums over the calls, in nanoseconds.
typedef struct ringfold_profiled_calls {
    // The name of the operation, as in allreduce or allgatherv.
    char operation[RINGFOLD_NAME_BYTES];
    // The name of the algorithm, as in ring.
    char algorithm[RINGFOLD_NAME_BYTES];
    // The number of calls.
    uint64_t calls;
    // The bytes of the larger of a rank's buffers, over all calls.
    uint64_t bytes;
    // The time from the beginning of a call to its end: that of waiting, moving and combining.
    uint64_t time_ns;
    // The time in which nothing moved: peers had sent nothing, or took nothing.
    uint64_t waiting_ns;
    // The time in which the rank moved bytes and managed the call.
    uint64_t moving_ns;
    // The time in which the rank combined elements.
    uint64_t combining_ns;
    // The time by the prices of links and of combining, in which no rank is late; -1 if they do
    // not tell it.
    int64_t expected_ns;
} ringfold_profiled_calls;

// The handle of a registration: memory of the program that RDMA devices know.
typedef struct ringfold_registration *ringfold_registration_t;

// The handle of a window: memory that all ranks of the host have mapped.
typedef struct ringfold_window *ringfold_window_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Writes the reduction of all ranks' inputs to the output of every rank. Both have `count`
// elements. In place: `input` is NULL or equals `output`.
//
// All ranks must make the same calls in the same order, with equal counts, types, operations and
// roots. A call blocks until this rank's part is done. An input and an output overlap only in a
// call in place. Memory of any alignment will do.
enum ringfold_result ringfold_all_reduce(const void *input,
                                         void *output,
                                         size_t count,
                                         enum ringfold_type type,
                                         ringfold_op_t op,
                                         ringfold_comm_t comm);

// Writes the inputs of all ranks, in rank order, to the output of every rank. An input has `count`
// elements, and the output `count` times the number of ranks. In place: `input` is NULL or points
// to block `rank` of `output`, which then is the input.
enum ringfold_result ringfold_all_gather(const void *input,
                                         void *output,
                                         size_t count,
                                         enum ringfold_type type,
                                         ringfold_comm_t comm);

// Reduces all ranks' inputs and writes block `rank` of the result to this rank's output. The
// output has `count` elements, and the input `count` times the number of ranks. In place: `output`
// points to block `rank` of `input`; or `input` is NULL, and `output` is the long buffer. The
// other blocks of a call in place are undefined afterwards.
enum ringfold_result ringfold_reduce_scatter(const void *input,
                                             void *output,
                                             size_t count,
                                             enum ringfold_type type,
                                             ringfold_op_t op,
                                             ringfold_comm_t comm);

// Writes the input of `root` to the output of every rank. Both have `count` elements. The inputs
// of other ranks are not read. In place on the root: `input` is NULL or equals `output`.
enum ringfold_result ringfold_broadcast(const void *input,
                                        void *output,
                                        size_t count,
                                        enum ringfold_type type,
                                        uint32_t root,
                                        ringfold_comm_t comm);

// Writes the reduction of all ranks' inputs to the output of `root`. Both have `count` elements.
// The outputs of other ranks are not written and may be NULL. In place: `input` is NULL or equals
// `output`.
enum ringfold_result ringfold_reduce(const void *input,
                                     void *output,
                                     size_t count,
                                     enum ringfold_type type,
                                     ringfold_op_t op,
                                     uint32_t root,
                                     ringfold_comm_t comm);

// Writes block r of this rank's input to block `rank` of the output of rank r. The input and the
// output have `count` elements for each rank. In place: `input` is NULL or equals `output`.
enum ringfold_result ringfold_all_to_all(const void *input,
                                         void *output,
                                         size_t count,
                                         enum ringfold_type type,
                                         ringfold_comm_t comm);

// Writes the inputs of all ranks, in rank order, to the output of `root`. An input has `count`
// elements, and the output `count` times the number of ranks. The outputs of other ranks are not
// written and may be NULL. In place on the root: `input` is NULL or points to block `root` of
// `output`, which then is the input.
enum ringfold_result ringfold_gather(const void *input,
                                     void *output,
                                     size_t count,
                                     enum ringfold_type type,
                                     uint32_t root,
                                     ringfold_comm_t comm);

// Writes block r of the input of `root` to the output of rank r. An output has `count` elements,
// and the input `count` times the number of ranks. The inputs of other ranks are not read and may
// be NULL. In place on the root: `output` points to block `root` of `input`; or `input` is NULL,
// and `output` is the long buffer.
enum ringfold_result ringfold_scatter(const void *input,
                                      void *output,
                                      size_t count,
                                      enum ringfold_type type,
                                      uint32_t root,
                                      ringfold_comm_t comm);

// Writes the reduction of the inputs of ranks 0 to r to the output of rank r. Both have `count`
// elements. In place: `input` is NULL or equals `output`.
enum ringfold_result ringfold_scan(const void *input,
                                   void *output,
                                   size_t count,
                                   enum ringfold_type type,
                                   ringfold_op_t op,
                                   ringfold_comm_t comm);

// Writes the reduction of the inputs of the ranks below r to the output of rank r. Both have
// `count` elements. The output of rank 0 is not written. In place: `input` is NULL or equals
// `output`.
enum ringfold_result ringfold_exscan(const void *input,
                                     void *output,
                                     size_t count,
                                     enum ringfold_type type,
                                     ringfold_op_t op,
                                     ringfold_comm_t comm);

// Waits until every rank has made this call.
enum ringfold_result ringfold_barrier(ringfold_comm_t comm);

// Writes the number of this rank, from 0 to the number of ranks less 1.
enum ringfold_result ringfold_comm_rank(ringfold_comm_t comm, uint32_t *rank);

// Writes the number of ranks.
enum ringfold_result ringfold_comm_size(ringfold_comm_t comm, uint32_t *size);

// Sets the time that a call may take, from a millisecond to a hundred years; infinity stands for
// the latter. A call that takes longer fails on all ranks.
enum ringfold_result ringfold_comm_set_timeout(ringfold_comm_t comm, double seconds);

// Divides the ranks into groups: ranks of one `color` get a communicator of their own. `key`
// orders the ranks of a group; ranks of equal keys keep their order. A rank with RINGFOLD_NO_COLOR
// gets NULL. Every rank of `comm` must call it, between the same two calls.
enum ringfold_result ringfold_comm_split(ringfold_comm_t comm,
                                         int64_t color,
                                         int64_t key,
                                         ringfold_comm_t *group);

// Makes a communicator of the same ranks, for calls that overlap those of `comm`. Every rank of
// `comm` must call it, between the same two calls.
enum ringfold_result ringfold_comm_duplicate(ringfold_comm_t comm, ringfold_comm_t *group);

// Makes a communicator of `count` of the ranks, in the order of the list. Other ranks get NULL.
// Every rank of `comm` must call it with the same list, between the same two calls.
enum ringfold_result ringfold_comm_subset(ringfold_comm_t comm,
                                          const uint32_t *ranks,
                                          size_t count,
                                          ringfold_comm_t *group);

// Makes a communicator of the ranks that survive a failure, in their old order and without the
// `count` ranks of the list, which may be empty. Every survivor must call it, with the same list,
// once for a communicator. Ranks that have ended, are stopped or disconnected are left out. `comm`
// remains to be freed. RINGFOLD_ERROR_REGROUP if too few ranks come, or the others have left this
// one out.
enum ringfold_result ringfold_comm_shrink(ringfold_comm_t comm,
                                          const uint32_t *ranks,
                                          size_t count,
                                          ringfold_comm_t *survivors);

// Makes a communicator of these ranks and at most `newcomers` processes that join the running job
// by ringfold_init_as_newcomer. Old ranks keep their numbers. Every rank must call it, between the
// same two calls. Rank 0 passes an id that it has made, and the others pass NULL. Every rank gets
// NULL if no newcomer comes within RINGFOLD_JOIN_TIMEOUT: the group stays as it is. `comm` remains
// usable, and to be freed.
enum ringfold_result ringfold_comm_grow(ringfold_comm_t comm,
                                        size_t newcomers,
                                        const struct ringfold_unique_id *id,
                                        ringfold_comm_t *larger);

// Waits for the processes that `ringrun --restart` starts in place of dead ranks, and makes a
// communicator with them, as ringfold_comm_grow does. Every rank must call it, usually after
// ringfold_comm_shrink. Waits for at most `seconds`. Every rank gets NULL if no process comes.
// In a new process, ringfold_init joins that communicator.
enum ringfold_result ringfold_comm_wait_for_replacement(ringfold_comm_t comm,
                                                        double seconds,
                                                        ringfold_comm_t *larger);

// Writes the lasting identity of a rank: its number in the first communicator, from which
// ringfold_comm_shrink and groups made this one.
enum ringfold_result ringfold_comm_identity(ringfold_comm_t comm,
                                            uint32_t rank,
                                            uint32_t *identity);

// Makes all calls on all ranks of the communicator fail, those that wait included. Does not wait,
// so any thread may call it at any time. The ranks' errors have the reason, which may be NULL. The
// communicator remains to be freed.
enum ringfold_result ringfold_comm_abort(ringfold_comm_t comm, const char *reason);

// Revokes the communicator: all calls on all ranks fail, those that wait included. Their errors
// name the rank that revoked it. No rank counts as failed, so ringfold_comm_shrink makes a
// communicator of all that live. One rank suffices. Does nothing after a failure. Does not wait,
// so any thread may call it at any time. The communicator remains to be freed.
enum ringfold_result ringfold_comm_revoke(ringfold_comm_t comm);

// Replaces `flag` by the bitwise and of the flags of all ranks, also after a failure or
// ringfold_comm_revoke. Absorbs failures of ranks meanwhile. Every rank that lives must call it,
// equally often. All ranks whose result is RINGFOLD_SUCCESS get the same value. Waits for ranks
// that compute, for the time to join at most. RINGFOLD_ERROR_REGROUP if too few ranks come, or the
// others have agreed without the flag of this one. `flag` then keeps its value.
enum ringfold_result ringfold_comm_agree(ringfold_comm_t comm, uint64_t *flag);

// Writes the ranks that have caused the failure, in ascending order, and their number to `count`:
// none without a failure, and after ringfold_comm_revoke. `ranks` has room for as many numbers as
// the communicator has ranks. Does not wait, so any thread may call it at any time.
enum ringfold_result ringfold_comm_failed_ranks(ringfold_comm_t comm,
                                                uint32_t *ranks,
                                                size_t *count);

// Writes whether the job has failed, without a call and without waiting: RINGFOLD_SUCCESS or
// RINGFOLD_ERROR_FAILED. After a failure ringfold_last_error has its cause.
enum ringfold_result ringfold_comm_async_error(ringfold_comm_t comm, enum ringfold_result *error);

// Leaves the group, and frees the handle even if the result is an error. Waits until the calls of
// other threads have ended, and then until the other ranks leave too, for a few seconds at most.
// Discards groups of calls that were not ended. A process must free its communicators before it
// exits; otherwise the other ranks see that it has died.
enum ringfold_result ringfold_comm_free(ringfold_comm_t comm);

// The message of the latest error in this thread, or an empty text. It stays valid until the next
// function of ringfold fails in this thread, or the thread ends.
const char *ringfold_last_error(void);

// The name of a result, as in "RINGFOLD_ERROR_HANDLE". The text is valid forever.
const char *ringfold_result_name(enum ringfold_result result);

// Starts a group of calls, and writes a handle that takes the place of `comm` in the calls of the
// group: messages and collectives with equal parts. Such a call is checked and kept, and returns
// at once. ringfold_group_end performs all of them together. Until then their memory belongs to
// the group. Calls with `comm` itself are no part of it.
enum ringfold_result ringfold_group_start(ringfold_comm_t comm, ringfold_comm_t *group);

// Performs the calls of a group, and frees its handle even if the result is an error. Blocks until
// all are done. Its messages start together, so sends and receives in any order do not deadlock.
// Its collectives begin when its messages are done. Short ones of the same kind, type, operation
// and root become one call, so all ranks must add the same ones in the same order. If a call was
// refused, or two calls use the same memory and one of them writes it, none begins.
enum ringfold_result ringfold_group_end(ringfold_comm_t group);

// Starts the calls of a group, frees its handle even if the result is an error, and writes a
// request, which ends with the last of them. Does not wait for other ranks. The group is checked
// as by ringfold_group_end, which another rank may call for the same group. The collectives do not
// wait for the messages. The memory belongs to the calls until ringfold_wait has returned.
enum ringfold_result ringfold_start_group(ringfold_comm_t group, ringfold_request_t *request);

// Frees the handle of a group without performing its calls. ringfold_comm_free does so for all
// groups of its communicator.
enum ringfold_result ringfold_group_discard(ringfold_comm_t group);

// The version of the library, as RINGFOLD_VERSION is that of the header.
uint32_t ringfold_version(void);

// Joins the group of ranks that a launcher started: ringrun, torchrun, srun or mpiexec. Without a
// launcher the process becomes a group of one. Every rank must call it. Blocks until all ranks
// have joined. Pass RINGFOLD_VERSION first. Settings are those of the environment.
enum ringfold_result ringfold_init(uint32_t version, ringfold_comm_t *comm);

// Makes the id of a group, with a fresh secret, and reserves a port for rank 0. Call it in the
// process of rank 0, and pass the text on to the other ranks. An id is good for one communicator.
// An id that is not used holds its port until the process ends.
enum ringfold_result ringfold_unique_id_create(uint32_t version, struct ringfold_unique_id *id);

// Joins the group of `size` ranks that share an id, as `rank`, without a launcher. Everything else
// is as for ringfold_init.
enum ringfold_result ringfold_init_with_id(uint32_t version,
                                           const struct ringfold_unique_id *id,
                                           uint32_t rank,
                                           uint32_t size,
                                           ringfold_comm_t *comm);

// Joins the ranks of a running job, which call ringfold_comm_grow with this id. Blocks until they
// admit this process. Rank 0 is never a newcomer, so it can broadcast the state of the job.
enum ringfold_result ringfold_init_as_newcomer(uint32_t version,
                                               const struct ringfold_unique_id *id,
                                               ringfold_comm_t *comm);

// Joins the group of `size` ranks that share a key-value store, as `rank`, without a launcher. The
// store is only used during the call. The n-th call of one rank meets the n-th call of the others.
// Everything else is as for ringfold_init.
enum ringfold_result ringfold_init_with_store(uint32_t version,
                                              const struct ringfold_store *store,
                                              uint32_t rank,
                                              uint32_t size,
                                              ringfold_comm_t *comm);

// Makes the sum of all elements after this rank's elements are multiplied by `factor`. Factors may
// differ between ranks. Free it with ringfold_op_free.
enum ringfold_result ringfold_op_create_pre_mul_sum(double factor, ringfold_op_t *op);

// Makes an operation of the program, on elements of `element_bytes` bytes, which must be
// commutative and associative. All ranks must make the same ones in the same order, with equal
// names and sizes. Blocks until all ranks have compared them. ringfold_all_reduce_by takes the
// operation. A name has at most 64 bytes, an element at most 16384, and a communicator at most
// 1024 operations in its time. Free it with ringfold_op_free, before or after the communicator.
enum ringfold_result ringfold_op_create(const char *name,
                                        size_t element_bytes,
                                        ringfold_combine_t combine,
                                        void *context,
                                        ringfold_comm_t comm,
                                        ringfold_op_t *op);

// Writes the reduction of all ranks' inputs by an operation of the program to the output of every
// rank. Both have `count` elements of the operation's size. Elements are combined in rank order.
// In place: `input` is NULL or equals `output`. All ranks must pass the same operation and the
// same count. If the operation fails on one rank, the job fails.
enum ringfold_result ringfold_all_reduce_by(const void *input,
                                            void *output,
                                            size_t count,
                                            ringfold_op_t op,
                                            ringfold_comm_t comm);

// Starts ringfold_all_reduce_by, as ringfold_start_all_reduce starts its call. The operation runs
// in the thread that advances the call, which may be one of ringfold.
enum ringfold_result ringfold_start_all_reduce_by(const void *input,
                                                  void *output,
                                                  size_t count,
                                                  ringfold_op_t op,
                                                  ringfold_comm_t comm,
                                                  ringfold_request_t *request);

// Frees an operation that a function of ringfold made. Waits for calls of other threads that use
// it. The library does not call its function any more.
enum ringfold_result ringfold_op_free(ringfold_op_t op);

// Sends `count` elements to rank `to`. Blocks until the message has left, or until the receiver
// takes it if it is long. Messages with the same tag from one rank to another never overtake each
// other. They have no part in the order of the collectives. Two ranks that send long messages to
// each other must use ringfold_send_recv, ringfold_start_send or a group of calls. In a group,
// `to` may be this rank.
enum ringfold_result ringfold_send(const void *data,
                                   size_t count,
                                   enum ringfold_type type,
                                   uint32_t to,
                                   uint32_t tag,
                                   ringfold_comm_t comm);

// Receives the first message of rank `from` with this tag in at most `count` elements. Blocks
// until it has arrived. `from` may be RINGFOLD_ANY_SOURCE, and `tag` RINGFOLD_ANY_TAG. A message
// that is longer gives RINGFOLD_ERROR_TRUNCATED and stays for a later receive. In a group of
// calls, `from` may be this rank.
enum ringfold_result ringfold_recv(void *data,
                                   size_t count,
                                   enum ringfold_type type,
                                   uint32_t from,
                                   uint32_t tag,
                                   ringfold_comm_t comm);

// Receives as ringfold_recv, and writes the message to `message`. Has no part in groups of calls.
enum ringfold_result ringfold_recv_message(void *data,
                                           size_t count,
                                           enum ringfold_type type,
                                           uint32_t from,
                                           uint32_t tag,
                                           struct ringfold_message *message,
                                           ringfold_comm_t comm);

// Receives as ringfold_recv, from any other rank, and writes the sender to `from`. Among several
// senders the search begins behind the one that it found last. Fails the job when all other ranks
// have left. Has no part in groups of calls.
enum ringfold_result ringfold_recv_any(void *data,
                                       size_t count,
                                       enum ringfold_type type,
                                       uint32_t tag,
                                       uint32_t *from,
                                       ringfold_comm_t comm);

// Writes to `is_there` whether the next message of rank `from` has begun to arrive: 1 or 0. If it
// has, writes its tag and its length in bytes. Does not wait, and leaves the message to a receive.
// Fails if `from` has left and all of its messages are received. Has no part in groups of calls.
enum ringfold_result ringfold_probe(uint32_t from,
                                    int *is_there,
                                    uint32_t *tag,
                                    size_t *bytes,
                                    ringfold_comm_t comm);

// Writes to `is_there` whether a message that ringfold_recv would take has begun to arrive: 1 or
// 0. If it has, writes it to `message`. `from` may be RINGFOLD_ANY_SOURCE, and `tag`
// RINGFOLD_ANY_TAG. Does not wait, and leaves the message to a receive. Has no part in groups of
// calls.
enum ringfold_result ringfold_probe_message(uint32_t from,
                                            uint32_t tag,
                                            int *is_there,
                                            struct ringfold_message *message,
                                            ringfold_comm_t comm);

// Sends `input_count` elements to rank `to` and receives a message of rank `from` in at most
// `output_count` elements, both with this tag. `from` may be RINGFOLD_ANY_SOURCE. Both progress at
// once, so a ring of ranks that all call it does not deadlock. Both ranks may be this one. Blocks
// until both are done. The input and the output must lie apart.
enum ringfold_result ringfold_send_recv(const void *input,
                                        size_t input_count,
                                        enum ringfold_type input_type,
                                        uint32_t to,
                                        void *output,
                                        size_t output_count,
                                        enum ringfold_type output_type,
                                        uint32_t from,
                                        uint32_t tag,
                                        ringfold_comm_t comm);

// Begins a profile of this rank's blocking collectives, in place of one that has begun before.
// Waits for a call of another thread, and for the collectives that were started. Ranks may do so
// independently of each other. Calls take a few clock readings longer while there is a profile.
enum ringfold_result ringfold_comm_begin_profile(ringfold_comm_t comm);

// Ends the profile, and writes the times of each kind of calls to `kinds`, which has room for
// `room` of them, in the order of the first call of each kind. Further kinds are left out. Writes
// the number of all kinds to `count`: none if no profile had begun. Waits as
// ringfold_comm_begin_profile.
enum ringfold_result ringfold_comm_end_profile(ringfold_comm_t comm,
                                               struct ringfold_profiled_calls *kinds,
                                               size_t room,
                                               size_t *count);

// Registers `bytes` bytes of memory with the RDMA devices of this rank, and writes the handle of
// the registration. Long messages of all communicators of the process then leave from this memory,
// and arrive in it, without a copy, and no call registers it again. Memory may be registered
// several times, whole and in parts, and each handle is deregistered. Succeeds without effect if
// the rank has no RDMA or `bytes` is 0. If no device registers the memory, as beyond `ulimit -l`,
// the log says why, and calls use the memory as any other. Memory that the CPU cannot read, as
// that of a GPU, gives RINGFOLD_ERROR_ARGUMENT. Waits for a call of another thread. While memory
// is registered, a faulty peer to which a message was announced there may write to it.
enum ringfold_result ringfold_comm_register(ringfold_comm_t comm,
                                            void *memory,
                                            size_t bytes,
                                            ringfold_registration_t *registration);

// Deregisters memory, before it is freed. Does not wait: calls that use the memory end first, so
// the memory stays registered until they have returned. May follow ringfold_comm_free and a call
// that has failed. In a child made by fork it leaves the registration to the parent.
enum ringfold_result ringfold_comm_deregister(ringfold_registration_t registration);

// Writes a handle that takes the place of `comm` in functions that start calls, as
// ringfold_start_all_reduce. With it they prepare their call instead: they write a request that
// ringfold_start starts, as often as the program wants. ringfold_request_free frees such a
// request. The handle itself needs no function to free it.
//
// Calls have the order of their starts. So ranks may prepare them in any order, and a prepared
// call meets the same call of other ranks, prepared or not.
enum ringfold_result ringfold_prepare(ringfold_comm_t comm, ringfold_comm_t *later);

// Starts ringfold_send, also to this rank, and writes a request. Does not wait for the receiver.
//
// The memory belongs to the message until ringfold_wait has returned, also after an error: nobody
// writes it.
enum ringfold_result ringfold_start_send(const void *data,
                                         size_t count,
                                         enum ringfold_type type,
                                         uint32_t to,
                                         uint32_t tag,
                                         ringfold_comm_t comm,
                                         ringfold_request_t *request);

// Starts ringfold_recv, also from this rank, and writes a request. ringfold_wait_message has the
// message. Receives take their messages in the order of their starts.
//
// The memory belongs to the receive until ringfold_wait has returned, also after an error: nobody
// else accesses it.
enum ringfold_result ringfold_start_recv(void *data,
                                         size_t count,
                                         enum ringfold_type type,
                                         uint32_t from,
                                         uint32_t tag,
                                         ringfold_comm_t comm,
                                         ringfold_request_t *request);

// Starts ringfold_all_reduce and writes a request. Does not wait for other ranks.
//
// The memory belongs to the call until ringfold_wait has returned, also after an error: nobody
// else writes it, and nobody reads the output. All ranks must start the same calls in the same
// order. A started call and a blocking one are the same: one rank may start it while another
// blocks in it.
enum ringfold_result ringfold_start_all_reduce(const void *input,
                                               void *output,
                                               size_t count,
                                               enum ringfold_type type,
                                               ringfold_op_t op,
                                               ringfold_comm_t comm,
                                               ringfold_request_t *request);

// Starts ringfold_all_gather, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_all_gather(const void *input,
                                               void *output,
                                               size_t count,
                                               enum ringfold_type type,
                                               ringfold_comm_t comm,
                                               ringfold_request_t *request);

// Starts ringfold_reduce_scatter, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_reduce_scatter(const void *input,
                                                   void *output,
                                                   size_t count,
                                                   enum ringfold_type type,
                                                   ringfold_op_t op,
                                                   ringfold_comm_t comm,
                                                   ringfold_request_t *request);

// Starts ringfold_broadcast, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_broadcast(const void *input,
                                              void *output,
                                              size_t count,
                                              enum ringfold_type type,
                                              uint32_t root,
                                              ringfold_comm_t comm,
                                              ringfold_request_t *request);

// Starts ringfold_reduce, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_reduce(const void *input,
                                           void *output,
                                           size_t count,
                                           enum ringfold_type type,
                                           ringfold_op_t op,
                                           uint32_t root,
                                           ringfold_comm_t comm,
                                           ringfold_request_t *request);

// Starts ringfold_all_to_all, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_all_to_all(const void *input,
                                               void *output,
                                               size_t count,
                                               enum ringfold_type type,
                                               ringfold_comm_t comm,
                                               ringfold_request_t *request);

// Starts ringfold_gather, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_gather(const void *input,
                                           void *output,
                                           size_t count,
                                           enum ringfold_type type,
                                           uint32_t root,
                                           ringfold_comm_t comm,
                                           ringfold_request_t *request);

// Starts ringfold_scatter, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_scatter(const void *input,
                                            void *output,
                                            size_t count,
                                            enum ringfold_type type,
                                            uint32_t root,
                                            ringfold_comm_t comm,
                                            ringfold_request_t *request);

// Starts ringfold_scan, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_scan(const void *input,
                                         void *output,
                                         size_t count,
                                         enum ringfold_type type,
                                         ringfold_op_t op,
                                         ringfold_comm_t comm,
                                         ringfold_request_t *request);

// Starts ringfold_exscan, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_exscan(const void *input,
                                           void *output,
                                           size_t count,
                                           enum ringfold_type type,
                                           ringfold_op_t op,
                                           ringfold_comm_t comm,
                                           ringfold_request_t *request);

// Starts ringfold_barrier, as ringfold_start_all_reduce starts its call.
enum ringfold_result ringfold_start_barrier(ringfold_comm_t comm, ringfold_request_t *request);

// Writes 1 to `ended` if the call of a request has ended, and 0 otherwise. Does not wait, and
// advances the calls of the communicator. The request stays until ringfold_wait.
enum ringfold_result ringfold_test(ringfold_request_t request, int *ended);

// Starts the call of a prepared request, after all calls that were started before. Does not wait
// for other ranks. The call is active until ringfold_wait has returned: it must not be started
// again before. Meanwhile its memory belongs to the call.
enum ringfold_result ringfold_start(ringfold_request_t request);

// Waits until the call of a request has ended, and returns the call's result. The memory of the
// call is the program's again. Frees the request, unless it is a prepared one. Such a one may be
// started again, and a wait for one that is not active returns at once.
enum ringfold_result ringfold_wait(ringfold_request_t request);

// Waits as ringfold_wait, and writes the message of a receive. Requests of other calls have none,
// and `message` stays as it is.
enum ringfold_result ringfold_wait_message(ringfold_request_t request,
                                           struct ringfold_message *message);

// Frees a request without a wait. Its call goes on, and no function tells its end. The memory
// belongs to the call until the communicator is freed, or a later call of its ranks shows that it
// has ended. Waits for other threads that use a prepared request.
enum ringfold_result ringfold_request_free(ringfold_request_t request);

// Writes a descriptor that is readable once the call of a request has ended, for an event loop.
// The program must not read or close it: the function that frees the request closes it.
enum ringfold_result ringfold_request_descriptor(ringfold_request_t request, int *descriptor);

// Waits until the call of one of `count` requests has ended, and writes its index. The request
// stays until ringfold_wait. Requests that are NULL are left out; if all are, `index` is `count`.
enum ringfold_result ringfold_wait_any(size_t count,
                                       const ringfold_request_t *requests,
                                       size_t *index);

// Writes part r of this rank's input to part `rank` of the output of rank r. There is a count and
// a displacement for each rank, in elements. If displacements are NULL, each part begins where the
// one before it ends. An empty part may begin anywhere. In place: the input and its counts are
// NULL, and the parts of the output are those of both.
//
// A rank that sends a part and the rank that receives it must give it the same length, or the job
// fails. Parts of an output must not overlap each other. An input and an output overlap only in a
// call in place. Between its first and its last part a buffer belongs to the call. This and all
// other calls with parts block until this rank's part is done, and have no part in groups of
// calls.
enum ringfold_result ringfold_all_to_all_v(const void *input,
                                           const size_t *input_counts,
                                           const size_t *input_displacements,
                                           void *output,
                                           const size_t *output_counts,
                                           const size_t *output_displacements,
                                           enum ringfold_type type,
                                           ringfold_comm_t comm);

// Writes the `input_count` elements of each rank r to part r of the output of `root`. Parts are
// those of ringfold_all_to_all_v. They and the output have a meaning on the root only, and may be
// NULL elsewhere. In place on the root: `input` is NULL, and `input_count` is not read; or `input`
// is part `root` of `output`.
enum ringfold_result ringfold_gather_v(const void *input,
                                       size_t input_count,
                                       void *output,
                                       const size_t *counts,
                                       const size_t *displacements,
                                       enum ringfold_type type,
                                       uint32_t root,
                                       ringfold_comm_t comm);

// Writes part r of the input of `root` to the `output_count` elements of rank r. Parts are those
// of ringfold_all_to_all_v. They and the input have a meaning on the root only, and may be NULL
// elsewhere. In place on the root: `output` is part `root` of `input`; or `input` is NULL,
// `output` is the long buffer, and `output_count` is not read.
enum ringfold_result ringfold_scatter_v(const void *input,
                                        const size_t *counts,
                                        const size_t *displacements,
                                        void *output,
                                        size_t output_count,
                                        enum ringfold_type type,
                                        uint32_t root,
                                        ringfold_comm_t comm);

// Writes the `input_count` elements of each rank r to part r of every rank's output. Parts are
// those of ringfold_all_to_all_v, with the same counts on all ranks. In place: `input` is NULL,
// and `input_count` is not read; or `input` is part `rank` of `output`.
enum ringfold_result ringfold_all_gather_v(const void *input,
                                           size_t input_count,
                                           void *output,
                                           const size_t *counts,
                                           const size_t *displacements,
                                           enum ringfold_type type,
                                           ringfold_comm_t comm);

// Reduces all ranks' inputs and writes part `rank` of the result to this rank's output, which has
// the count of that part. Parts are those of ringfold_all_to_all_v, with the same counts on all
// ranks. Inputs are combined in rank order, and sums of short floats are rounded once. In place:
// `output` is part `rank` of `input`; or `input` is NULL, and `output` is the long buffer. The
// rest of the buffer of a call in place stays as it was.
enum ringfold_result ringfold_reduce_scatter_v(const void *input,
                                               void *output,
                                               const size_t *counts,
                                               const size_t *displacements,
                                               enum ringfold_type type,
                                               ringfold_op_t op,
                                               ringfold_comm_t comm);

// Starts ringfold_all_to_all_v, as ringfold_start_all_reduce starts its call. The counts and the
// displacements are read before this returns.
enum ringfold_result ringfold_start_all_to_all_v(const void *input,
                                                 const size_t *input_counts,
                                                 const size_t *input_displacements,
                                                 void *output,
                                                 const size_t *output_counts,
                                                 const size_t *output_displacements,
                                                 enum ringfold_type type,
                                                 ringfold_comm_t comm,
                                                 ringfold_request_t *request);

// Starts ringfold_gather_v, as ringfold_start_all_to_all_v starts its call.
enum ringfold_result ringfold_start_gather_v(const void *input,
                                             size_t input_count,
                                             void *output,
                                             const size_t *counts,
                                             const size_t *displacements,
                                             enum ringfold_type type,
                                             uint32_t root,
                                             ringfold_comm_t comm,
                                             ringfold_request_t *request);

// Starts ringfold_scatter_v, as ringfold_start_all_to_all_v starts its call.
enum ringfold_result ringfold_start_scatter_v(const void *input,
                                              const size_t *counts,
                                              const size_t *displacements,
                                              void *output,
                                              size_t output_count,
                                              enum ringfold_type type,
                                              uint32_t root,
                                              ringfold_comm_t comm,
                                              ringfold_request_t *request);

// Starts ringfold_all_gather_v, as ringfold_start_all_to_all_v starts its call.
enum ringfold_result ringfold_start_all_gather_v(const void *input,
                                                 size_t input_count,
                                                 void *output,
                                                 const size_t *counts,
                                                 const size_t *displacements,
                                                 enum ringfold_type type,
                                                 ringfold_comm_t comm,
                                                 ringfold_request_t *request);

// Starts ringfold_reduce_scatter_v, as ringfold_start_all_to_all_v starts its call.
enum ringfold_result ringfold_start_reduce_scatter_v(const void *input,
                                                     void *output,
                                                     const size_t *counts,
                                                     const size_t *displacements,
                                                     enum ringfold_type type,
                                                     ringfold_op_t op,
                                                     ringfold_comm_t comm,
                                                     ringfold_request_t *request);

// Makes a window of `bytes` bytes, all zero, and writes its handle and the address of its memory.
// Every rank must call it with the same number. Blocks until all ranks have the window. All ranks
// of one host have it mapped, and with RDMA the devices know it. Its memory also serves as
// ordinary memory of any call.
enum ringfold_result ringfold_window_alloc(size_t bytes,
                                           ringfold_comm_t comm,
                                           ringfold_window_t *window,
                                           void **memory);

// Frees a window and its memory on this rank, once its calls have ended and prepared ones are
// freed. Does not wait. A window may be freed after its communicator.
enum ringfold_result ringfold_window_free(ringfold_window_t window);

// Writes the reduction of `count` elements from byte `offset` of all ranks' windows `input` to the
// same bytes of every rank's window `output`. In place: `input` is NULL or equals `output`. Peers
// read and write the windows directly until the call is done.
enum ringfold_result ringfold_all_reduce_window(ringfold_window_t input,
                                                ringfold_window_t output,
                                                size_t offset,
                                                size_t count,
                                                enum ringfold_type type,
                                                ringfold_op_t op,
                                                ringfold_comm_t comm);

// Starts ringfold_all_reduce_window, as ringfold_start_all_reduce starts its call. The elements of
// the call belong to it until ringfold_wait has returned. Calls of one window follow one another.
// If one fails, writes of the program to any part of the window since its start may be lost.
enum ringfold_result ringfold_start_all_reduce_window(ringfold_window_t input,
                                                      ringfold_window_t output,
                                                      size_t offset,
                                                      size_t count,
                                                      enum ringfold_type type,
                                                      ringfold_op_t op,
                                                      ringfold_comm_t comm,
                                                      ringfold_request_t *request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RINGFOLD_H */
