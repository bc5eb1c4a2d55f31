package main

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/blake2b"
)

// The kinds of frames: docs/reference/supervisor.md.
const (
	hello    = 1
	put      = 2
	script   = 3
	run      = 4
	read     = 5
	write    = 6
	cancel   = 7
	again    = 8
	ack      = 9
	list     = 10
	ping     = 11
	bye      = 12
	clearAll = 13
	track    = 14
	changes  = 15
	restore  = 16

	ready  = 64
	output = 65
	result = 66
	pong   = 67
	states = 68
)

const (
	headerBytes = 32
	mostBytes   = 4 << 20
	chunkBytes  = 1 << 20
)

var little = binary.LittleEndian

// answer is a row of the table. The first one whose words fit a request is given.
type answer struct {
	// In is part of the request: its words, its stdin, or the path that it reads.
	In string `json:"in"`
	// After is part of an earlier request to the same container; empty fits always.
	After string `json:"after"`
	// Stdout is the output, or the content of the file.
	Stdout string `json:"stdout"`
	// Echo names a variable of the command whose value is the output.
	Echo string `json:"echo"`
	Exit uint32 `json:"exit"`
	// Seconds is how long the command takes.
	Seconds float64 `json:"seconds"`
}

type outcome struct {
	exit           uint32
	stdout, stderr []byte
}

// supervisor is a container's: what it remembers between streams.
type supervisor struct {
	answers []answer

	mutex   sync.Mutex
	key     []byte
	stream  uint64
	inputs  map[uint64][]byte
	running map[uint64]bool
	results map[uint64]outcome
	begun   uint64
	seen    map[string]bool
	current *stream
}

func newSupervisor(answers []answer) *supervisor {
	return &supervisor{
		answers: answers,
		inputs:  map[uint64][]byte{},
		running: map[uint64]bool{},
		results: map[uint64]outcome{},
		seen:    map[string]bool{},
	}
}

// reset makes it the supervisor of a new container.
func (v *supervisor) reset() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	fresh := newSupervisor(v.answers)
	v.key, v.stream, v.current, v.begun = nil, 0, nil, 0
	v.inputs, v.running, v.results, v.seen = fresh.inputs, fresh.running, fresh.results, fresh.seen
}

// stream is one connection; frames are sealed for it.
type stream struct {
	number         uint64
	key            []byte
	in             *bufio.Reader
	out            io.Writer
	sent, received uint64
	mutex          sync.Mutex
}

func (s *stream) code(position uint64, side byte, header, body []byte) []byte {
	hash, err := blake2b.New(16, s.key)
	must(err)
	place := little.AppendUint64(little.AppendUint64(nil, s.number), position)
	hash.Write(append(place, side))
	hash.Write(header)
	hash.Write(body)
	return hash.Sum(nil)
}

func header(number uint64, kind uint32, length int) []byte {
	plain := little.AppendUint32(little.AppendUint64(nil, number), kind)
	return little.AppendUint32(plain, uint32(length))
}

func (s *stream) send(number uint64, kind uint32, body []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sendLocked(number, kind, body)
}

func (s *stream) sendLocked(number uint64, kind uint32, body []byte) {
	plain := header(number, kind, len(body))
	frame := append(plain, s.code(s.sent, 'r', plain, body)...)
	s.sent++
	// An error is noticed by the reader: the connection is gone.
	_, _ = s.out.Write(append(frame, body...))
}

// sendResult sends output and result as one: results never interleave.
func (s *stream) sendResult(number uint64, done outcome) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	data := append(append([]byte{}, done.stdout...), done.stderr...)
	for start := 0; start < len(data); start += chunkBytes {
		s.sendLocked(number, output, data[start:min(len(data), start+chunkBytes)])
	}
	body := little.AppendUint32(little.AppendUint32(nil, done.exit), 0)
	for _, size := range []int{len(done.stdout), len(done.stdout), len(done.stderr), len(done.stderr)} {
		body = little.AppendUint64(body, uint64(size))
	}
	s.sendLocked(number, result, body)
}

func (s *stream) receive() (number uint64, kind uint32, body []byte, err error) {
	var head [headerBytes]byte
	if _, err = io.ReadFull(s.in, head[:]); err != nil {
		return
	}
	number, kind = little.Uint64(head[:]), little.Uint32(head[8:])
	length := little.Uint32(head[12:])
	if length > mostBytes {
		err = fmt.Errorf("a frame of %d bytes", length)
		return
	}
	body = make([]byte, length)
	if _, err = io.ReadFull(s.in, body); err != nil {
		return
	}
	if s.key == nil {
		if kind != hello {
			err = fmt.Errorf("a stream begins with a frame of kind %d", kind)
			return
		}
		s.number, s.key = number, body
	}
	if !hmac.Equal(head[16:], s.code(s.received, 'q', head[:16], body)) {
		err = errors.New("a frame is not the session's")
	}
	s.received++
	return
}

// greet accepts a stream that is newer than all before, and knows the key.
func (v *supervisor) greet(in io.Reader, out io.Writer) (*stream, error) {
	if _, err := io.WriteString(out, "swe-rollout 3 ready\n"); err != nil {
		return nil, err
	}
	v.mutex.Lock()
	key := v.key
	v.mutex.Unlock()
	s := &stream{key: key, in: bufio.NewReader(in), out: out}
	if key != nil {
		// The stream's number, which the code covers, is that of its first frame.
		head, err := s.in.Peek(16)
		if err != nil {
			return nil, err
		}
		s.number = little.Uint64(head)
		if little.Uint32(head[12:]) > 0 {
			// It brings a key: another pod of the same name, after the first one was deleted.
			v.reset()
			s.key = nil
		}
	}
	if _, kind, _, err := s.receive(); err != nil {
		return nil, err
	} else if kind != hello {
		return nil, fmt.Errorf("a stream begins with a frame of kind %d", kind)
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if s.number <= v.stream {
		return nil, errors.New("a newer stream has come")
	}
	v.key, v.stream, v.current = s.key, s.number, s
	s.send(0, ready, []byte("/bin/bash"))
	return s, nil
}

// serve answers the requests of one stream; it returns true once the session has ended.
func (v *supervisor) serve(in io.Reader, out io.Writer) (ended bool, err error) {
	s, err := v.greet(in, out)
	for err == nil {
		var number uint64
		var kind uint32
		var body []byte
		number, kind, body, err = s.receive()
		if err != nil {
			break
		}
		if kind == bye {
			return true, nil
		}
		v.take(s, number, kind, body)
	}
	return false, err
}

func (v *supervisor) take(s *stream, number uint64, kind uint32, body []byte) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	switch kind {
	case put, script:
		v.inputs[number] = append(v.inputs[number], body...)
	case ack:
		for ; len(body) >= 8; body = body[8:] {
			delete(v.results, little.Uint64(body))
		}
	case again:
		if done, ok := v.results[number]; ok {
			s.sendResult(number, done)
		}
	case list:
		var known []byte
		for each := range v.running {
			known = append(little.AppendUint64(known, each), 0)
		}
		for each := range v.results {
			known = append(little.AppendUint64(known, each), 1)
		}
		s.send(number, states, known)
	case ping:
		counts := little.AppendUint64(nil, v.begun)
		s.send(number, pong, little.AppendUint32(counts, uint32(len(v.running))))
	case cancel:
		delete(v.inputs, number)
	case run, read, write, clearAll, restore, track, changes:
		v.begin(number, kind, append(body, v.inputs[number]...))
		delete(v.inputs, number)
	}
}

// begin answers a request, at once or when its time is over. The caller holds the mutex.
func (v *supervisor) begin(number uint64, kind uint32, text []byte) {
	if kind != track && kind != changes {
		v.begun++
	}
	done, wait := v.answer(kind, text)
	for _, each := range v.answers {
		if each.After != "" && bytes.Contains(text, []byte(each.After)) {
			v.seen[each.After] = true
		}
	}
	v.running[number] = true
	finish := func() {
		delete(v.running, number)
		v.results[number] = done
		if v.current != nil {
			v.current.sendResult(number, done)
		}
	}
	if wait == 0 {
		finish()
		return
	}
	time.AfterFunc(wait, func() {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		finish()
	})
}

// answer finds the first row that fits. Without one, a command succeeds and prints nothing.
func (v *supervisor) answer(kind uint32, text []byte) (outcome, time.Duration) {
	switch kind {
	case track, changes: // No file differs: five counts, and no words.
		return outcome{stderr: make([]byte, 40)}, 0
	case write, clearAll, restore:
		return outcome{}, 0
	}
	for _, each := range v.answers {
		if !bytes.Contains(text, []byte(each.In)) || (each.After != "" && !v.seen[each.After]) {
			continue
		}
		stdout := []byte(each.Stdout)
		if each.Echo != "" {
			stdout = variable(text, each.Echo)
		}
		wait := time.Duration(each.Seconds * float64(time.Second))
		return outcome{exit: each.Exit, stdout: stdout}, wait
	}
	return outcome{}, 0
}

// variable returns the value of a variable of a command, and a newline.
func variable(text []byte, name string) []byte {
	_, rest, _ := bytes.Cut(text, []byte("\x00"+name+"="))
	value, _, _ := bytes.Cut(rest, []byte{0})
	return append(bytes.Clone(value), '\n')
}
