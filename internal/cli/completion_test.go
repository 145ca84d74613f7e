package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"monopod/internal/daemontest/clitest"
)

func TestTheShellCompletesWhatTheDaemonKnows(t *testing.T) {
	d := newDaemon(t)
	for _, c := range []struct{ args, want string }{{"exec ", ":4"}, {"cp ", ":2"}, {"get pod ", ":4"}, {"port-forward web ", ":4"}, {"exec -n ", ":4"}} {
		p := d.Program()
		var out, errs strings.Builder
		p.Stdout, p.Stderr = &out, &errs
		code := commands(t.Context(), p, append([]string{"__complete"}, strings.Split(c.args, " ")...))
		if code != 0 || out.String() != c.want+"\n" || strings.Contains(errs.String(), "monopod") {
			t.Errorf("without a daemon, %q: %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
	d.Put("web.yaml", clitest.Reachable)
	d.Put("db.yaml", strings.Replace(clitest.Reachable, "name: web", "name: db, namespace: data", 1))
	d.Start()
	d.Eventually("the pods run", func() error {
		if r := d.Cmd("wait", "web", "data/db", "--timeout", "1s"); r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	for args, want := range map[string]string{
		"exec ": "data/db web :4", "exec w": "web :4", "exec -n data ": "db :4", "exec web -c ": "app other :4", "exec -n data db -c o": "other :4", "exec web ": ":4",
		"attach ": "data/db web :4", "logs ": "data/db web :4", "logs web ": "app other :4", "logs data/db ": "app other :4",
		"port-forward ": "data/db web :4", "port-forward web ": "http :4", "port-forward web http ": ":4",
		"cp ": "data/db: web: :2", "cp local ": "data/db: web: :2", "cp web:/etc ": ":2", "cp web:/etc . -c ": "app other :4",
		"get po": "pods :4", "get s": "secrets services sources statefulsets storageclasses :4", "get pods ": "data/db web :4", "get sources ": ":4", "get -n ": "data default :4",
		"top ": "containers node pods :4", "top containers ": "data/db web :4", "top node ": ":4", "top pods --sort-by ": "cpu memory :4",
		"describe ": "data/db web :4", "get deploy ": ":4", "get no ": "test-node :4", "describe pod ": "data/db web :4", "wait web ": "data/db :4", "why ": "data/db web :4", "why web ": ":4", "exec gone -c ": ":4",
	} {
		p := d.Program()
		var out, errs strings.Builder
		p.Stdout, p.Stderr = &out, &errs
		code := commands(t.Context(), p, append([]string{"__complete"}, strings.Split(args, " ")...))
		lines := strings.Fields(out.String())
		if n := len(lines); n > 1 {
			slices.Sort(lines[:n-1])
		}
		if got := strings.Join(lines, " "); code != 0 || got != want {
			t.Errorf("%q: %d, %q, want %q\n%s", args, code, got, want, errs.String())
		}
	}
	// Each name is that of a command, and each command with pods is included.
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := d.Cmd("completion", shell); r.Code != 0 || !strings.Contains(r.Stdout, "__complete") {
			t.Errorf("%s: %+v", shell, r)
		}
	}
}
