package hostdir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	boardFile  = "board"
	boardPlace = 1 << 24 // bytes of the file for each text
	maxPost    = boardPlace - 4
	maxPosts   = 1 << 16
	boardPause = 10 * time.Millisecond // between tries to lock a board that another process holds
)

// Board is where each process of a fabric on this machine may leave one text for the
// others, across all hosts of the fabric. A text ends with its process, however the process
// ends. A Board is used by one goroutine at a time.
//
// It is the file board in a directory. It is divided into places of
// 16 MiB, of which most bytes are never written. A process that has a text holds a lock on
// the first byte of its place, as for a claim. The contents of a place without a lock mean
// nothing. A place begins with the length of the text, 4 bytes, little endian. A process
// that reads or writes holds an flock on the file, and waits for nothing meanwhile.
type Board struct {
	place *openPlace // its directory, which is entered until Close; nil if the fabric is within one process
	file  *os.File   // nil likewise, and after Close; its open file has the locks
	at    int64      // the place that this Board holds, -1 for none
}

// NoBoard returns a Board of which nobody else knows.
func NoBoard() *Board { return &Board{at: -1} }

// OpenBoard opens the board of a place, and makes it if it does not exist and create is
// set. Its errors are those of Open.
func OpenBoard(p Place, create bool) (*Board, error) {
	place, err := p.enter(create)
	if err != nil {
		return nil, err
	}
	fd, err := place.openFile(boardFile, create)
	if err != nil {
		place.close()
		return nil, err
	}
	return &Board{place: place, file: os.NewFile(uintptr(fd), filepath.Join(place.path, boardFile)), at: -1}, nil
}

// Post leaves a text of at most 16 MiB, and returns the texts that were there before. If
// two processes post, the later one gets the text of the earlier one, but not the
// reverse. The text stays until Close, or the end of the process. A Board has one text.
//
// ctx limits how long Post waits for another process that uses the board.
func (b *Board) Post(ctx context.Context, text []byte) (earlier [][]byte, err error) {
	switch {
	case b.file == nil:
		return nil, nil
	case b.at >= 0:
		return nil, fmt.Errorf("fabric: post: %w", fs.ErrExist)
	case len(text) > maxPost:
		return nil, fmt.Errorf("fabric: post %d bytes, want at most %d: %w", len(text), maxPost, unix.EMSGSIZE)
	}
	if err := b.hold(ctx); err != nil {
		return nil, err
	}
	defer flock(int(b.file.Fd()), unix.LOCK_UN)
	if earlier, err = b.read(); err != nil {
		return nil, err
	}
	if err := b.take(); err != nil {
		return nil, err
	}
	if err := hasName(int(b.file.Fd()), b.file.Name()); err != nil {
		return nil, errors.Join(err, b.leave())
	}
	if _, err := b.file.WriteAt(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), b.at); err != nil {
		return nil, errors.Join(err, b.leave())
	}
	if _, err := b.file.WriteAt(text, b.at+4); err != nil {
		return nil, errors.Join(err, b.leave())
	}
	return earlier, nil
}

// hold takes the flock.
func (b *Board) hold(ctx context.Context) error {
	for {
		err := flock(int(b.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != unix.EWOULDBLOCK {
			return fmt.Errorf("fabric: lock %s: %w", b.file.Name(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("fabric: %s is held by another process, which may be stopped: %w", b.file.Name(), ctx.Err())
		case <-time.After(boardPause):
		}
	}
}

// read reads the texts of others. The caller holds the flock.
func (b *Board) read() (texts [][]byte, err error) {
	info, err := b.file.Stat()
	if err != nil {
		return nil, err
	}
	for at := int64(0); at < info.Size(); at += boardPlace {
		_, ok, err := locked(int(b.file.Fd()), at, 1)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		var head [4]byte
		if _, err := b.file.ReadAt(head[:], at); err != nil {
			return nil, fmt.Errorf("fabric: read %s: %w", b.file.Name(), err)
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > maxPost {
			return nil, fmt.Errorf("fabric: %s has a text of %d bytes, want at most %d: %w", b.file.Name(), n, maxPost, unix.EPROTO)
		}
		text := make([]byte, n)
		if _, err := b.file.ReadAt(text, at+4); err != nil && !(n == 0 && err == io.EOF) {
			return nil, fmt.Errorf("fabric: read %s: %w", b.file.Name(), err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// take locks the first place that is free.
func (b *Board) take() error {
	for i := range int64(maxPosts) {
		switch err := lockBytes(int(b.file.Fd()), unix.F_WRLCK, i*boardPlace, 1); err {
		case nil:
			b.at = i * boardPlace
			return nil
		case unix.EAGAIN, unix.EACCES:
		default:
			return fmt.Errorf("fabric: lock a place of %s: %w", b.file.Name(), err)
		}
	}
	return fmt.Errorf("fabric: all %d places of %s are taken: %w", maxPosts, b.file.Name(), unix.EAGAIN)
}

// leave gives the place back.
func (b *Board) leave() error {
	err := lockBytes(int(b.file.Fd()), unix.F_UNLCK, b.at, 1)
	b.at = -1
	return err
}

// Close removes the text. It may be called twice.
func (b *Board) Close() error {
	if b.file == nil {
		return nil
	}
	var err error
	if b.at >= 0 {
		// Closing alone might leave the lock for a moment, see Dir.Close.
		err = b.leave()
	}
	b.file.Close()
	b.place.close()
	b.file = nil
	return err
}

// removeBoard removes the board of a place. It returns no error if there is none.
func removeBoard(p Place) error {
	b, err := OpenBoard(p, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer b.Close()
	path := b.file.Name()
	// A process that has a text holds a lock on some byte.
	if err := lockBytes(int(b.file.Fd()), unix.F_WRLCK, 0, 0); err != nil {
		return fmt.Errorf("fabric: %s: a process has a text there: %w", path, unix.EBUSY)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("fabric: %w", err)
	}
	return nil
}
