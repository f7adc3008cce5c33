//go:build linux && (amd64 || arm64)

package fabric

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbshm"
)

// shmNetwork is the network of the processes of one user on one machine.
type shmNetwork struct {
	dir    *Dir  // immutable
	number int   // immutable
	spec   *Spec // immutable
	ln     *net.UnixListener
	wg     sync.WaitGroup // serve, and exchanges that are under way
	ctx    context.Context
	cancel context.CancelFunc
}

func openShm(spec *Spec) (network, error) {
	dir, err := OpenDir(spec.Name)
	if err != nil {
		return nil, err
	}
	n := &shmNetwork{dir: dir, spec: spec}
	if n.number, err = dir.ClaimProcess(); err == nil {
		n.ln, err = dir.Listen(n.number)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

func (n *shmNetwork) host() int                       { return localHost }
func (n *shmNetwork) process() int                    { return n.number }
func (n *shmNetwork) claimPort(port int) (int, error) { return n.dir.ClaimPort(port) }
func (n *shmNetwork) releasePort(port int)            { n.dir.ReleasePort(port) }

func (n *shmNetwork) holder(port int) (int, bool, error) { return n.dir.Holder(port) }

func (n *shmNetwork) publishSocket(port int, cookie uint64) error {
	return n.dir.PublishSocket(port, cookie)
}
func (n *shmNetwork) withdrawSocket(port int, cookie uint64) { n.dir.WithdrawSocket(port, cookie) }
func (n *shmNetwork) hasSockets(port int) (bool, error)      { return n.dir.HasSockets(port) }
func (n *shmNetwork) socketHolder(port int, cookie uint64) (int, bool, error) {
	return n.dir.SocketHolder(port, cookie)
}

func (n *shmNetwork) connect(ctx context.Context, process int) (ntb.Device, error) {
	cable, err := n.dir.Connect(ctx, process)
	if err != nil {
		return nil, err
	}
	return n.exchange(ctx, cable)
}

// exchange turns a cable into a bridge.
func (n *shmNetwork) exchange(ctx context.Context, cable *net.UnixConn) (ntb.Device, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := cable.SetDeadline(deadline); err != nil {
			cable.Close()
			return nil, err
		}
	}
	dev, err := ntbshm.New(cable, ntbshm.Options{Window: n.spec.Window})
	if err != nil {
		return nil, err
	}
	wrapped, _ := n.spec.wrap(dev, nil)
	return wrapped, nil
}

func (n *shmNetwork) serve(accepted func(ntb.Device)) {
	n.wg.Go(func() {
		for {
			cable, err := AcceptPeer(n.ln)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				// For example, there are no descriptors left. The other side's dial
				// fails or waits.
				select {
				case <-n.ctx.Done():
					return
				case <-time.After(acceptPause):
				}
				continue
			}
			n.wg.Go(func() {
				ctx, cancel := context.WithTimeout(n.ctx, linkTimeout)
				defer cancel()
				stop := context.AfterFunc(ctx, func() { cable.Close() })
				dev, err := n.exchange(ctx, cable)
				if err == nil && stop() {
					accepted(dev)
				} else if err == nil {
					dev.Close()
				}
			})
		}
	})
}

func (n *shmNetwork) close() {
	n.cancel()
	n.ln.Close()
	n.wg.Wait()
	n.dir.Close()
}
