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

	"monopod/internal/daemontest"
)

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
		p.Stdin, p.Stdout, p.Stderr = strings.NewReader("typed"), &out, &errs
		if code := NewCommands(p).run(t.Context(), c.args); (result{out.String(), errs.String(), code}) != c.want {
			t.Errorf("%q:\n%+v, want\n%+v", c.args, result{out.String(), errs.String(), code}, c.want)
		}
	}
	d.forwards(t)
}

// forwards connects to a named port of the pod, and to a closed one.
func (d *testDaemon) forwards(t *testing.T) {
	t.Helper()
	p := d.program()
	var out, errs daemontest.SyncBuffer
	p.Stdout, p.Stderr = &out, &errs
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- NewCommands(p).run(ctx, []string{"port-forward", "web", ":http", ":81", "--address", "127.0.0.1"})
	}()
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
