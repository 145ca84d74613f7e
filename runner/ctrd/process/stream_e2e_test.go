//go:build e2e

package process_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/process"
	"monopod/runner/ctrd/trees"
)

// live is a buffer that can be read while it is written.
type live struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *live) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *live) has(t testing.TB, text string) {
	t.Helper()
	ctrdtest.Within(t, 20*time.Second, fmt.Sprintf("the output has %q", text), func() bool { return strings.Contains(l.String(), text) })
}

// shell runs a script in the pod's only container with streams of its own.
func shell(ctx context.Context, t testing.TB, a *ctrdtest.Agent, key manifests.Key, script string, s streams.Streams) (int, error) {
	t.Helper()
	return a.Processes.Stream(ctx, key, a.State(t, key).Containers[0].ID, []string{"sh", "-c", script}, s)
}

const sleeper = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: ` + ctrdtest.TestImage + `, command: [sh, -c, "trap exit TERM; while :; do sleep 1000 & wait; done"]}
`

// TestStreams has one agent for all that a command with streams of its own does.
func TestStreams(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	w.Runtime = ctrdtest.ShippedRunc(t)
	for _, dir := range []string{w.Dir, w.Run} { // for the pod with ids of its own
		ctrdtest.Check(t, os.Chmod(dir, 0o711))
	}
	a := w.Open(t)
	defer func() { a.End(t) }()
	pods := map[string]*manifests.Pod{}
	for name, fields := range map[string]string{"plain": "hostNetwork: true", "mapped": "hostUsers: false", "shared": "shareProcessNamespace: true"} {
		pods[name] = ctrdtest.Load(t, fmt.Sprintf(sleeper, name, fields))
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pods[name]))
	}
	key := pods["plain"].Key()
	before := a.Census(t)
	for name, test := range map[string]func(*testing.T, *ctrdtest.Agent, manifests.Key){
		"streams": testStreamsApart, "big": testMuchData, "terminal": testTerminal, "background": testBackground, "canceled": testCanceled,
		"unread": testUnreadInput, "missing": testMissingCommand,
	} {
		t.Run(name, func(t *testing.T) { test(t, a, key) })
	}
	t.Run("all kinds of pods", func(t *testing.T) {
		for _, p := range pods {
			testStreamsApart(t, a, p.Key())
		}
	})
	t.Run("many", func(t *testing.T) { testManyAtOnce(t, a, key) })
	ctrdtest.Within(t, 20*time.Second, "no FIFO is left", func() bool { return len(trees.Names(a.Dirs.Path("exec"))) == 0 })
	a.SameCensus(t, before)
	t.Run("dial", func(t *testing.T) { testDial(t, a, pods["plain"].Key(), pods["mapped"].Key()) })
	t.Run("restart", func(t *testing.T) { testSessionOfAnEarlierAgent(t, w, a, key) })
	t.Run("end of the container", func(t *testing.T) { testContainerEnds(t, a, pods["shared"].Key()) })
	for _, p := range pods {
		ctrdtest.Check(t, ctrdtest.RemovePod(context.WithoutCancel(t.Context()), a, p.Key()))
	}
}

func testStreamsApart(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	var out, errs live
	code, err := shell(t.Context(), t, a, key, `read a; read b; echo "out $a"; echo "error $b" >&2; cat; exit 7`, streams.Streams{
		Stdin: strings.NewReader("first\nsecond\nrest"), Stdout: &out, Stderr: &errs,
	})
	if code != 7 || err != nil || out.String() != "out first\nrest" || errs.String() != "error second\n" {
		t.Errorf("%d, %v, %q, %q", code, err, out.String(), errs.String())
	}
	code, err = shell(t.Context(), t, a, key, "cat; kill -9 $$", streams.Streams{})
	if code != process.ExitKilled || err != nil {
		t.Errorf("without streams: %d, %v", code, err)
	}
}

// slow takes little at a time.
type slow struct{ to io.Writer }

func (s slow) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := s.to.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func testMuchData(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	data := make([]byte, 4<<20)
	for i := range data {
		data[i] = byte(rand.N(256))
	}
	sum := sha256.New()
	code, err := shell(t.Context(), t, a, key, "cat", streams.Streams{Stdin: bytes.NewReader(data), Stdout: slow{sum}})
	if want := sha256.Sum256(data); code != 0 || err != nil || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d, %v: what came back is not what was sent", code, err)
	}
}

func testTerminal(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	sizes := make(chan streams.Size, 1)
	sizes <- streams.Size{Width: 100, Height: 30}
	in, typed := io.Pipe()
	var out live
	done := make(chan error, 1)
	go func() {
		code, err := shell(t.Context(), t, a, key, `tty; echo "$TERM"; while read x; do echo "got $x, size $(stty size)"; done; exit 3`, streams.Streams{
			Stdin: in, Stdout: &out, TTY: true, Resize: sizes,
		})
		_ = in.Close()
		if err == nil && code != 3 {
			err = fmt.Errorf("exit code %d", code)
		}
		done <- err
	}()
	out.has(t, "/dev/pts/0\r\nxterm\r\n")
	sized := func(size string) {
		ctrdtest.Within(t, 20*time.Second, "the terminal has its size", func() bool {
			_, err := io.WriteString(typed, "x\n")
			ctrdtest.Check(t, err)
			return strings.Contains(out.String(), "got x, size "+size)
		})
	}
	sized("30 100")
	sizes <- streams.Size{Width: 50, Height: 10}
	sized("10 50")
	_, err := io.WriteString(typed, "\x04") // end of input
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, <-done)
}

// testBackground: what a command leaves behind does not hold it up for long, nor ends with it.
func testBackground(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	var out live
	began, long := time.Now(), strconv.Itoa(100_000+os.Getpid()) // that of another run on this machine is not it
	code, err := shell(t.Context(), t, a, key, "sleep "+long+" & echo started", streams.Streams{Stdout: &out})
	if code != 0 || err != nil || out.String() != "started\n" || time.Since(began) < process.StreamQuiet || time.Since(began) > 2*process.StreamQuiet+ctrdtest.Patience {
		t.Errorf("%d, %v, %q after %s", code, err, out.String(), time.Since(began))
	}
	left := running("sleep", long)
	if len(left) != 1 {
		t.Fatalf("what was left in the background: %v", left)
	}
	ctrdtest.Check(t, unix.Kill(left[0], unix.SIGKILL))
}

// running returns the processes with a command line.
func running(args ...string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && string(b) == strings.Join(args, "\x00")+"\x00" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// testCanceled: with who asked for it goes all that belongs to a command.
func testCanceled(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	for _, tty := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		var out live
		done := make(chan error, 1)
		go func() {
			_, err := shell(ctx, t, a, key, "trap '' HUP; set -m; sleep 5432 & sleep 5432 & echo ready; wait", streams.Streams{Stdout: &out, TTY: tty})
			done <- err
		}()
		out.has(t, "ready")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("terminal %t: %v", tty, err)
		}
		ctrdtest.Within(t, 10*time.Second, "none of its processes is left", func() bool { return len(running("sleep", "5432")) == 0 })
	}
	// The same if the client does not read the output.
	_, err := shell(t.Context(), t, a, key, "yes", streams.Streams{Stdout: broken{}})
	if !errors.Is(err, process.ErrGone) {
		t.Errorf("nobody takes its output: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// testUnreadInput: a command need not read what it is sent.
func testUnreadInput(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	var out live
	in, sent := io.Pipe()
	go func() {
		for _, err := sent.Write(make([]byte, 1<<16)); err == nil; _, err = sent.Write(make([]byte, 1<<16)) {
		}
	}()
	code, err := shell(t.Context(), t, a, key, "echo no", streams.Streams{Stdin: in, Stdout: &out})
	if code != 0 || err != nil || out.String() != "no\n" {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
	ctrdtest.Check(t, in.Close())
}

func testMissingCommand(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	id := a.State(t, key).Containers[0].ID
	for _, tty := range []bool{false, true} {
		_, err := a.Processes.Stream(t.Context(), key, id, []string{"/no/such"}, streams.Streams{Stdin: strings.NewReader("x"), TTY: tty})
		if err == nil || !strings.Contains(err.Error(), "no such file or directory") {
			t.Errorf("terminal %t: %v", tty, err)
		}
	}
}

func testManyAtOnce(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	var g errgroup.Group
	for i := range 50 {
		g.Go(func() error {
			var out live
			code, err := shell(t.Context(), t, a, key, "cat; exit 5", streams.Streams{Stdin: strings.NewReader(fmt.Sprint(i)), Stdout: &out, TTY: false})
			if err == nil && (code != 5 || out.String() != fmt.Sprint(i)) {
				err = fmt.Errorf("command %d: %d, %q", i, code, out.String())
			}
			return err
		})
	}
	ctrdtest.Check(t, g.Wait())
}

func testDial(t *testing.T, a *ctrdtest.Agent, host, inside manifests.Key) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	ctrdtest.Check(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			_, _ = c.Write(append([]byte("host "), b...))
			_ = c.Close()
		}
	}()
	talk := func(key manifests.Key, port int) string {
		c, err := a.Processes.Dial(t.Context(), key, port)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		ctrdtest.Check(t, err)
		ctrdtest.Check(t, c.(*net.TCPConn).CloseWrite())
		b, err := io.ReadAll(c)
		ctrdtest.Check(t, err)
		return string(b)
	}
	if got := talk(host, ln.Addr().(*net.TCPAddr).Port); got != "host hello" {
		t.Errorf("host network: %s", got)
	}
	if got := talk(inside, ln.Addr().(*net.TCPAddr).Port); !strings.Contains(got, "nothing answers") || !strings.Contains(got, "refused") {
		t.Errorf("a port of the host, in a pod: %s", got)
	}
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			_, err := shell(ctx, t, a, inside, "exec httpd -f -h /etc -p "+address+":8080", streams.Streams{})
			served <- err
		}()
		ctrdtest.Within(t, 20*time.Second, "the pod answers", func() bool {
			c, err := a.Processes.Dial(t.Context(), inside, 8080)
			if err != nil {
				return false
			}
			defer c.Close()
			_, _ = c.Write([]byte("GET /passwd HTTP/1.0\r\n\r\n"))
			b, _ := io.ReadAll(c)
			return strings.Contains(string(b), "root:")
		})
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the server in the pod: %v", err)
		}
	}
}

// testSessionOfAnEarlierAgent has a session whose client is gone; the container is not affected.
func testSessionOfAnEarlierAgent(t *testing.T, w *ctrdtest.World, a *ctrdtest.Agent, key manifests.Key) {
	rec := a.Index.OfPod(key)[0]
	c, err := a.Processes.StartSession(a.NS(t.Context()), rec, []string{"sh", "-c", "trap '' HUP; sleep 6543 & yes"}, streams.Streams{Stdin: strings.NewReader("")})
	ctrdtest.Check(t, err)
	c.CloseOutputs() // as the end of the agent does
	a.Stop(t)
	*a = *w.Open(t)
	ctrdtest.Within(t, 20*time.Second, "the command has ended", func() bool { return !ctrdtest.Alive(uint32(c.Pid)) })
	ctrdtest.Within(t, 20*time.Second, "its FIFOs are gone", func() bool { return len(trees.Names(a.Dirs.Path("exec"))) == 0 })
	ctrdtest.Within(t, 10*time.Second, "none of its processes is left", func() bool { return len(running("sleep", "6543")) == 0 })
	if st := a.State(t, key).Containers[0]; st.ID != rec.ID || st.State != runner.ContainerRunning {
		t.Errorf("the container is %v", st)
	}
}

func testContainerEnds(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	var out live
	done := make(chan error, 1)
	go func() {
		code, err := shell(t.Context(), t, a, key, "echo ready; sleep 1000", streams.Streams{Stdout: &out})
		if err == nil && code != process.ExitKilled {
			err = fmt.Errorf("exit code %d", code)
		}
		done <- err
	}()
	out.has(t, "ready")
	c := a.State(t, key).Containers[0]
	ctrdtest.Check(t, a.Apply(t.Context(), key, nil, runner.Action{Kind: runner.KillContainer, Container: "c", ContainerID: c.ID}))
	ctrdtest.Check(t, <-done)
}

// TestAttachments has one agent for all that can be done with the streams of a container's own process.
func TestAttachments(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	attach := func(pod *manifests.Pod, s streams.Streams) chan error {
		done := make(chan error, 1)
		id := a.State(t, pod.Key()).Containers[0].ID
		go func() { done <- a.Processes.Attach(t.Context(), pod.Key(), id, s) }()
		return done
	}
	t.Run("once", func(t *testing.T) {
		pod := inputPod(t, "once", "stdin: true, stdinOnce: true", `while read line; do echo "read $line"; echo "error $line" >&2; done; echo "end of input"`)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		in, typed := io.Pipe()
		var out, errs, other live
		first, second := attach(pod, streams.Streams{Stdin: in, Stdout: &out, Stderr: &errs}), attach(pod, streams.Streams{Stdout: &other})
		_, err := io.WriteString(typed, "one\n")
		ctrdtest.Check(t, err)
		out.has(t, "read one\n")
		errs.has(t, "error one\n")
		ctrdtest.Check(t, typed.Close())
		a.Says(t, pod.Key(), "end of input") // the log has it as well
		c := a.Exit(t, pod.Key())
		ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: c.ID, Exit: c.Exit}))
		ctrdtest.Check(t, <-first)
		ctrdtest.Check(t, <-second)
		if !strings.HasSuffix(out.String(), "end of input\n") || !strings.HasSuffix(other.String(), "end of input\n") || strings.Contains(out.String(), "error") {
			t.Errorf("%q, %q", out.String(), other.String())
		}
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	})
	t.Run("terminal", func(t *testing.T) {
		pod := inputPod(t, "terminal", "stdin: true, tty: true", `while read line; do echo "read $line, $(stty size)"; done`)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		for i := range 2 { // leaving ends nothing
			in, typed := io.Pipe()
			var out live
			sizes := make(chan streams.Size, 1)
			sizes <- streams.Size{Width: 90, Height: uint16(20 + i)}
			done := attach(pod, streams.Streams{Stdin: in, Stdout: &out, TTY: true, Resize: sizes})
			ctrdtest.Within(t, 20*time.Second, "the terminal has its size", func() bool {
				_, err := io.WriteString(typed, "x\n")
				return err == nil && strings.Contains(out.String(), fmt.Sprintf("read x, %d 90", 20+i))
			})
			ctrdtest.Check(t, typed.Close())
			ctrdtest.Check(t, <-done)
		}
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	})
	t.Run("a slow reader", func(t *testing.T) {
		pod := inputPod(t, "slow", "stdin: false", `for i in $(seq 200000); do echo "line $i of many"; done; exec sleep 1000`)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		stuck, unstick := io.Pipe()
		done := attach(pod, streams.Streams{Stdout: unstick})
		a.Says(t, pod.Key(), "line 200000 of many") // nothing waits for it
		go func() { _, _ = io.Copy(io.Discard, stuck) }()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "see the log for the rest") {
			t.Errorf("a reader that takes nothing: %v", err)
		}
		ctrdtest.Check(t, unstick.Close())
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	})
	a.Idle(t)
	if left := trees.Names(a.Dirs.Path("logs")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
