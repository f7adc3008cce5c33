// Package litmus tests store–look pairs. In such a pair, two sides each store a word and then look
// for the other's. It has only tests. No package imports it.
//
// A processor may make the look before its own store is visible to others. If both sides do,
// neither sees the other's word, and one of them sleeps with work to do. The order of several
// stores is another matter: amd64 keeps it, and a device that records stores tests it.
//
// Each pair has a number. Both sides in the code name it in a comment, as "pair S1". The tests read
// the code: each number must be in the table, and each fence must have a number.
//
// # The pairs
//
// The first line of each pair is the side that works. The second line is the side that is about to
// sleep, or that stands for it.
//
//	pair  function                  stores                    looks at                ordered by
//	S1    bounce bell.announce      record's first line       data arm                nothing, or Fence
//	      bounce waiter.wait        data arm                  record's header         Device.Order
//	S2    bounce reader.publishCredit credit                  space arm               nothing, or Fence
//	      bounce waiter.wait        space arm                 credit                  Device.Order
//	S3    bounce control.peerArm    record's header, credit   arm, before and after   Fence, by parkingBit
//	      bounce waiter.order       arm                       header, credit          Fence
//	S4    link   bridge.Wake        master word               link's arm              Fence
//	      link   bridge.Park        link's arm                master word             Fence, or Device.Order
//	S6    ring   outLane.Put        frame's first word        lane's data arm         nothing, or Fence
//	      ring   inLane.sleep       lane's data arm           frame's first word      Fence, or Device.Order
//	S7    ring   inLane.answer      lane's credit             lane's space arm        nothing, or Fence
//	      ring   outLane.armSpace   lane's space arm          lane's credit           Fence, or Device.Order
//	S8    onesided Peer.Stored      element of the heap       arm                     nothing, or Fence
//	      onesided Space.park       arm                       element of the heap     membarrier, or Fence
//	S9    bounce signal.notify      what it wakes for         wake: is it full        Fence
//	      bounce waiter.sleep       wake: takes a token       what woke it            channel's lock
//	S10   tunnel inbound.wake       stores of a frame         woken: is it full       Fence
//	      tunnel Tunnel.Wait        woken: takes a token      stores of a frame       channel's lock
//	S11   ntbmem end.RingDoorbell   words of a window         bell: is it full        Fence
//	      ntbmem end.WaitDoorbell   bell: takes a token       words of a window       channel's lock
//	S12   ntbshm device.RingDoorbell ring word                who waits               system call
//	      ntbshm device.newRung     begins to wait            ring word               Go's poller
//	S13   bounce Pair.Notified      the peer, words           waiter.parked           seen before
//	      bounce waiter.wait        waiter.parked             the peer's words        sync/atomic
//	S14   ring   inLane.pollOnward  inLane.next               outLane.waits           sync/atomic
//	      ring   outLane.run        outLane.waits             inLane.next             sync/atomic
//	S16   bounce Pair.Notified      the peer, words           Pair.linked             seen before
//	      bounce Pair.Connect       Pair.linked               the peer's words        sync/atomic
//	S17   link   Peer.run           the peer, words           Peer.up                 seen before
//	      link   Peer.open          Peer.up                   the peer's words        sync/atomic
//	S18   onesided Ctx.Quiet        element of a heap         another element         Fence
//	      onesided Ctx.Quiet        the other element         the first               Fence
//	S19   onesided Peer.store       element, by a window      copy of the arm         Fence
//	      onesided Space.publishArm copies of the arm        element of the heap     Device.Order
//
// "nothing, or Fence" depends on [ntb.Caps].FenceToLook, and for S6 and S7 on FenceToLook or
// Coherent. Where Device.Order is membarrier, it is a
// barrier in the threads of both processes, and the side that works has none. Otherwise both sides
// fence. Both ways are tested. "seen before" means that another process stored the word, and that
// the look follows the sight of it.
//
// Where frames lead to a peer there is no such pair. What the peer publishes passes through this
// process, under the lock of the goroutines that wait for it. There is no pair either if the stored
// word is always followed by a notification.
//
// # The tests
//
// Two processes, each on a processor of its own, share the windows of an ntbshm device. They make
// the stores and looks of a pair by the functions that the code uses, again and again, at times
// that differ by a small random amount. Channels cannot be shared between processes, so their pairs
// are tested by two threads on an ntbmem device.
//
// Each test has two halves. With the ordering of the code, no round may end with both sides blind.
// With one side's ordering taken out, some round must, or else the first half shows nothing. A
// machine that does not show it, such as one with a single processor, gets a line "WARNING:"
// instead of the second half. S12 has no second half, since there is nothing to take out.
//
// The race detector does not see such a fence, and its atomic stores order more than the code's. So
// the tests are left out under -race.
//
//	go test ./internal/testing/litmus            # some seconds
//	go test -short ./internal/testing/litmus     # one or two
//	NTBNET_LITMUS=1m go test -v -timeout 1h ./internal/testing/litmus
//
// NTBNET_LITMUS is the length of each half of each test. With -v the tests print the rounds and how
// many were blind.
//
// No thread ends while a pair is tested, unless NTBNET_LITMUS_EXITS is set. When a thread ends,
// Linux (kernel/exit.c, exit_mm) marks its processor as one that global expedited membarriers need
// not reach. If the next thread to run there is one of the same process, Linux does not take the
// mark back (membarrier_switch_mm), until one of another process has run. Until then, Device.Order
// by membarrier does not order the stores and looks of that thread. Then pairs S1, S2 and S8 fail,
// about once in some hundred thousand rounds. So do S6 and S7 by Order, which is
// tested here and not used on such memory. A waiter that relied on Order alone looks once more later:
//
//	NTBNET_LITMUS_EXITS=1 NTBNET_LITMUS=30s go test -v -timeout 1h -run Blind/S6 ./internal/testing/litmus
package litmus
