package sdp

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// ways to write some bytes at once.
var ways = map[string]func(c *Conn, p []byte) (int64, error){
	"Write":    func(c *Conn, p []byte) (int64, error) { n, err := c.Write(p); return int64(n), err },
	"ReadFrom": func(c *Conn, p []byte) (int64, error) { return c.ReadFrom(bytes.NewReader(p)) },
	"Buffers":  func(c *Conn, p []byte) (int64, error) { return (&net.Buffers{p}).WriteTo(c) },
	"Commit": func(c *Conn, p []byte) (int64, error) {
		space, err := c.Reserve(len(p))
		if err != nil {
			return 0, err
		}
		n := copy(space, p)
		c.Commit(n)
		return int64(n), nil
	},
}

// What is written first after the other side has closed counts as written and is lost, as over
// TCP, and the next call fails. What the other side has sent is still read.
func TestTheFirstWriteAfterTheOtherSideHasClosedIsLost(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for name, write := range ways {
			for _, size := range []int{1, 5000, 64 << 10} {
				a, b := mustPipe(t, f)
				_, err := b.Write([]byte("answer"))
				require.NoError(t, err)
				require.NoError(t, b.Close())
				n, err := write(a, make([]byte, size))
				require.NoError(t, err, "%s of %d bytes", name, size)
				require.EqualValues(t, size, n)
				n, err = write(a, []byte{1})
				require.ErrorIs(t, err, syscall.EPIPE, name)
				require.Zero(t, n)
				got, err := io.ReadAll(a)
				require.NoError(t, err)
				require.Equal(t, "answer", string(got))
				require.NoError(t, a.Close())
			}
		}
	})
}

// A lease that began before the other side closed counts as the first Write.
func TestALeaseThatTheOtherSideOutrunsIsLost(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		space, err := a.Reserve(100)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		a.Commit(len(space))
		_, err = a.Reserve(100)
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

// A lease of which nothing is committed is no Write.
func TestAnEmptyLeaseIsNoWrite(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		require.NoError(t, b.Close())
		for range 2 {
			_, err := a.Reserve(100)
			require.NoError(t, err)
			a.Commit(0)
		}
		_, err := a.Write([]byte{1})
		require.NoError(t, err)
		_, err = a.Write([]byte{1})
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

// Where the other side has closed with unread data, nothing is taken.
func TestTheFirstWriteAfterAResetFails(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for name, write := range ways {
			a, b := mustPipe(t, f)
			_, err := a.Write([]byte("unread"))
			require.NoError(t, err)
			require.NoError(t, b.Close())
			n, err := write(a, []byte("more"))
			require.ErrorIs(t, err, syscall.ECONNRESET, name)
			require.Zero(t, n)
		}
	})
}

// The alert with which tls.Conn.Close ends is mostly written to a peer that has closed.
func TestTLSCloseBehindThePeers(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"here"}}
	cert, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		served := make(chan error, 1)
		go func() {
			server := tls.Server(b, config)
			server.Write([]byte("answer"))
			served <- server.Close()
		}()
		client := tls.Client(a, &tls.Config{InsecureSkipVerify: true})
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Equal(t, "answer", string(got))
		require.NoError(t, <-served)
		require.NoError(t, client.Close())
	})
}
