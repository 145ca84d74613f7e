package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"monopod/internal/streams"
	"monopod/manifests"
)

// Stream implements stream.Runtime: the command is its own description.
func (f *fakeRuntime) Stream(_ context.Context, key manifests.Key, _ string, command []string, s streams.Streams) (int, error) {
	in := ""
	if s.Stdin != nil {
		b, err := io.ReadAll(s.Stdin)
		if err != nil {
			return 0, err
		}
		in = string(b)
	}
	fmt.Fprintf(s.Stdout, "%s %q %s", key, command, in)
	fmt.Fprint(s.Stderr, "oops\n")
	if command[0] == "none" {
		return 0, errors.New("no such command")
	}
	return len(command), nil
}

// Attach implements stream.Runtime.
func (f *fakeRuntime) Attach(_ context.Context, key manifests.Key, _ string, s streams.Streams) error {
	_, err := fmt.Fprintf(s.Stdout, "output of %s, input %t", key, s.Stdin != nil)
	return err
}

// Dial implements stream.Runtime: there is one port, which says its number.
func (f *fakeRuntime) Dial(_ context.Context, _ manifests.Key, port int) (net.Conn, error) {
	if port != 80 {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	go func() {
		_, _ = fmt.Fprintf(there, "port %d\n", port)
		_ = there.Close()
	}()
	return here, nil
}

const reachable = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: i, ports: [{name: http, containerPort: 80}]}
  - {name: other, image: i, stdin: true}
`

func TestExecAttachAndPortForward(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", reachable)
	d.start()
	d.eventually("the pod runs", func() error {
		if r := d.cmd("wait", "web", "--timeout", "1s"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	for _, c := range []struct {
		args []string
		want result
	}{
		{[]string{"exec", "web", "--", "a", "-b", "c d"}, result{`default/web ["a" "-b" "c d"] `, "Defaulted container \"app\" out of: app, other\noops\ncommand terminated with exit code 3\n", 3}},
		{[]string{"exec", "-q", "pod/web", "-c", "other", "--", "a"}, result{`default/web ["a"] `, "oops\n", 1}},
		{[]string{"exec", "-i", "web", "-c", "app", "--", "none"}, result{`default/web ["none"] typed`, "oops\nmonopod: Internal error occurred: error executing command in container: no such command\n", 1}},
		{[]string{"exec", "-it", "web", "-c", "app", "--", "a", "b"}, result{`default/web ["a" "b"] typed`, "Unable to use a TTY - input is not a terminal or the right kind of file\noops\ncommand terminated with exit code 2\n", 2}},
		{[]string{"exec", "web", "-c", "none", "--", "a"}, result{"", "monopod: container not found (\"none\")\n", 1}},
		{[]string{"exec", "gone", "--", "a"}, result{"", "monopod: pod \"gone\" not found in namespace \"default\"\n", 1}},
		{[]string{"exec", "web", "a"}, result{"", "monopod: usage: monopod exec POD [-c CONTAINER] -- COMMAND [ARG...]\nsee `monopod exec --help`\n", 2}},
		{[]string{"exec", "web", "--"}, result{"", "monopod: usage: monopod exec POD [-c CONTAINER] -- COMMAND [ARG...]\nsee `monopod exec --help`\n", 2}},
		{[]string{"attach", "web", "-i", "-c", "app"}, result{"output of default/web, input false", "container app has no standard input (stdin: true)\n", 0}},
		{[]string{"attach", "web", "-it", "-c", "other"}, result{"output of default/web, input true", "Unable to use a TTY - container other did not allocate one\n", 0}},
		{[]string{"attach", "web", "-c", "none"}, result{"", "monopod: pod default/web has no container \"none\"; it has app, other\n", 1}},
		{[]string{"port-forward", "web"}, result{"", "monopod: usage: monopod port-forward POD|KIND/NAME [LOCAL:]REMOTE... [flags]\nsee `monopod port-forward --help`\n", 2}},
		{[]string{"port-forward", "web", "https"}, result{"", "monopod: \"https\" is neither a port nor the name of a port of the pod\nsee `monopod port-forward --help`\n", 2}},
		{[]string{"port-forward", "web", "x:80"}, result{"", "monopod: \"x\" is not a port\nsee `monopod port-forward --help`\n", 2}},
		{[]string{"port-forward", "web", ":80", "--address", "here"}, result{"", "monopod: --address here is neither localhost nor an IP address\nsee `monopod port-forward --help`\n", 2}},
	} {
		p := d.program()
		var out, errs bytes.Buffer
		p.stdin, p.stdout, p.stderr = strings.NewReader("typed"), &out, &errs
		if code := p.run(t.Context(), c.args); (result{out.String(), errs.String(), code}) != c.want {
			t.Errorf("%q:\n%+v, want\n%+v", c.args, result{out.String(), errs.String(), code}, c.want)
		}
	}
	d.forwards(t)
}

// forwards connects to a port of the pod by its name, and to one that is not there.
func (d *daemon) forwards(t *testing.T) {
	t.Helper()
	p := d.program()
	var out, errs syncBuffer
	p.stdout, p.stderr = &out, &errs
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- p.run(ctx, []string{"port-forward", "web", ":http", ":81", "--address", "127.0.0.1"}) }()
	var address, wrong string
	d.eventually("it listens", func() error {
		_, err := fmt.Sscanf(out.String(), "Forwarding from %s -> 80\nForwarding from %s -> 81\n", &address, &wrong)
		return err
	})
	for _, c := range []struct{ address, want string }{{address, "port 80\n"}, {wrong, ""}} {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != c.want || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q, %v", got, err)
		}
		_ = conn.Close()
	}
	d.eventually("the error is told", func() error {
		if want := "an error occurred forwarding " + wrong + " -> 81: error forwarding port 81 to pod default/web: connection refused\n"; errs.String() != want {
			return fmt.Errorf("%q", errs.String())
		}
		return nil
	})
	stop()
	if code := <-done; code != 0 {
		t.Errorf("interrupted: exit code %d", code)
	}
}

func TestTheKeysToLeaveATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"abc":             "abc",
		"a\x10b":          "a\x10b",
		"a\x10\x10\x11b":  "a\x10",
		"ab\x10\x11cd":    "ab",
		"\x11\x10":        "\x11",
		"a\x10bc\x10\x11": "a\x10bc",
	} {
		for _, size := range []int{1, 2, 3, 100} {
			left := false
			d := &detachable{from: strings.NewReader(in), leave: func() { left = true }}
			var got []byte
			var err error
			for p := make([]byte, size); err == nil; {
				var n int
				n, err = d.Read(p)
				got = append(got, p[:n]...)
			}
			if wanted := strings.Contains(in, "\x10\x11"); string(got) != want || left != wanted || errors.Is(err, errDetach) != wanted {
				t.Errorf("%q in pieces of %d: %q, %v, left: %t", in, size, got, err, left)
			}
		}
	}
}

func TestTheEndOfAStreamIsNoted(t *testing.T) {
	t.Parallel()
	ends := 0
	r := &inside{over: func() { ends++ }}
	if _, err := r.Stream(t.Context(), manifests.Key{}, "", []string{"a"}, streams.Streams{}); err == nil || ends != 0 {
		t.Errorf("without a runtime: %v, %d ends", err, ends)
	}
	r.set(&fakeRuntime{})
	s := streams.Streams{Stdout: io.Discard, Stderr: io.Discard}
	code, err := r.Stream(t.Context(), manifests.Key{}, "", []string{"a"}, s)
	if aerr := r.Attach(t.Context(), manifests.Key{}, "", s); err != nil || aerr != nil || code != 1 || ends != 2 {
		t.Errorf("%v, %v, %d, %d ends", err, aerr, code, ends)
	}
}
