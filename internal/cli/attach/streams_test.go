package attach

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
	"monopod/internal/daemontest/clitest"
)

func TestExecAttachAndPortForward(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Reachable)
	d.Start()
	d.Ready("web")
	for _, c := range []struct {
		args []string
		want clitest.Result
	}{
		{[]string{"exec", "web", "--", "a", "-b", "c d"}, clitest.Printed(`default/web ["a" "-b" "c d"] `, "Defaulted container \"app\" out of: app, other\noops\ncommand terminated with exit code 3\n", 3)},
		{[]string{"exec", "-q", "pod/web", "-c", "other", "--", "a"}, clitest.Printed(`default/web ["a"] `, "oops\n", 1)},
		{[]string{"exec", "-i", "web", "-c", "app", "--", "none"}, clitest.Printed(`default/web ["none"] typed`, "oops\nmonopod: Internal error occurred: error executing command in container: no such command\n", 1)},
		{[]string{"exec", "-it", "web", "-c", "app", "--", "a", "b"}, clitest.Printed(`default/web ["a" "b"] typed`, "Unable to use a TTY - input is not a terminal or the right kind of file\noops\ncommand terminated with exit code 2\n", 2)},
		{[]string{"exec", "web", "-c", "none", "--", "a"}, clitest.Printed("", "monopod: container not found (\"none\")\n", 1)},
		{[]string{"exec", "gone", "--", "a"}, clitest.Printed("", "monopod: pod \"gone\" not found in namespace \"default\"\n", 1)},
		{[]string{"exec", "web", "a"}, clitest.Printed("", "monopod: usage: monopod exec POD [-c CONTAINER] -- COMMAND [ARG...]\nsee `monopod exec --help`\n", 2)},
		{[]string{"exec", "web", "--"}, clitest.Printed("", "monopod: usage: monopod exec POD [-c CONTAINER] -- COMMAND [ARG...]\nsee `monopod exec --help`\n", 2)},
		{[]string{"attach", "web", "-i", "-c", "app"}, clitest.Printed("output of default/web, input false", "container app has no standard input (stdin: true)\n", 0)},
		{[]string{"attach", "web", "-it", "-c", "other"}, clitest.Printed("output of default/web, input true", "Unable to use a TTY - container other did not allocate one\n", 0)},
		{[]string{"attach", "web", "-c", "none"}, clitest.Printed("", "monopod: pod default/web has no container \"none\"; it has app, other\n", 1)},
		{[]string{"port-forward", "web"}, clitest.Printed("", "monopod: usage: monopod port-forward POD|KIND/NAME [LOCAL:]REMOTE... [flags]\nsee `monopod port-forward --help`\n", 2)},
		{[]string{"port-forward", "web", "https"}, clitest.Printed("", "monopod: \"https\" is neither a port nor the name of a port of the pod\nsee `monopod port-forward --help`\n", 2)},
		{[]string{"port-forward", "web", "x:80"}, clitest.Printed("", "monopod: \"x\" is not a port\nsee `monopod port-forward --help`\n", 2)},
		{[]string{"port-forward", "web", ":80", "--address", "here"}, clitest.Printed("", "monopod: --address here is neither localhost nor an IP address\nsee `monopod port-forward --help`\n", 2)},
	} {
		p := d.Program()
		var out, errs bytes.Buffer
		p.Stdin, p.Stdout, p.Stderr = strings.NewReader("typed"), &out, &errs
		if code := commands(t.Context(), p, c.args); clitest.Printed(out.String(), errs.String(), code) != c.want {
			t.Errorf("%q:\n%+v, want\n%+v", c.args, clitest.Printed(out.String(), errs.String(), code), c.want)
		}
	}
	forwards(t, d)
}

// forwards connects to a named port of the pod, and to a closed one.
func forwards(t *testing.T, d *clitest.Daemon) {
	t.Helper()
	p := d.Program()
	var out, errs daemontest.SyncBuffer
	p.Stdout, p.Stderr = &out, &errs
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- commands(ctx, p, []string{"port-forward", "web", ":http", ":81", "--address", "127.0.0.1"})
	}()
	var address, wrong string
	d.Eventually("it listens", func() error {
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
	d.Eventually("the error is told", func() error {
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
