package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"monopod/internal/program"
)

func TestTheShellCompletesWhatTheDaemonKnows(t *testing.T) {
	d := newDaemon(t)
	for _, c := range []struct{ args, want string }{{"exec ", ":4"}, {"cp ", ":2"}, {"get pod ", ":4"}, {"port-forward web ", ":4"}, {"exec -n ", ":4"}} {
		p := d.program()
		var out, errs strings.Builder
		p.Stdout, p.Stderr = &out, &errs
		code := NewCommands(p).run(t.Context(), append([]string{"__complete"}, strings.Split(c.args, " ")...))
		if code != 0 || out.String() != c.want+"\n" || strings.Contains(errs.String(), "monopod") {
			t.Errorf("without a daemon, %q: %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
	d.put("web.yaml", reachable)
	d.put("db.yaml", strings.Replace(reachable, "name: web", "name: db, namespace: data", 1))
	d.start()
	d.eventually("the pods run", func() error {
		if r := d.cmd("wait", "web", "data/db", "--timeout", "1s"); r.code != 0 {
			return errors.New(r.stderr)
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
		p := d.program()
		var out, errs strings.Builder
		p.Stdout, p.Stderr = &out, &errs
		code := NewCommands(p).run(t.Context(), append([]string{"__complete"}, strings.Split(args, " ")...))
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
		if r := d.cmd("completion", shell); r.code != 0 || !strings.Contains(r.stdout, "__complete") {
			t.Errorf("%s: %+v", shell, r)
		}
	}
}

// Only the named command gets a flag for each key of the configuration.
func TestFlagsOfTheConfigurationAreThoseOfTheCommandThatIsNamed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, args := range [][]string{{"run", "--help-config"}, {"once", "--help-config"}, {"up", "--help-config"}, {"__complete", "down", "--node"}, {"config", "--node-name=x"}} {
		if r := d.cmd(args...); r.code != 0 || !strings.Contains(r.stdout, "node-name") && !strings.Contains(r.stdout, "nodeName: x") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := d.cmd("get", "pods", "--node-name=x"); r.code != program.ExitUsage {
		t.Errorf("%+v", r)
	}
}
