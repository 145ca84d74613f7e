package setup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/host"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/node/systemd"
	"monopod/runner/runtimetest"
)

func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := clitest.StandInHost(t, d.Dir, true)
	to := d.Path("bin", "monopod")
	command := func(stdin string, args ...string) clitest.Result {
		p := d.Program()
		p.Host, p.Machine.Open = h, d.Prog.Machine.Open
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Stdin, p.Stdout, p.Stderr = strings.NewReader(stdin), out, errs
		code := commands(t.Context(), p, append(args, "--config", d.Path("config.yaml")))
		return clitest.Printed(out.String(), errs.String(), code)
	}
	if r := command("", "install", "--path", to); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	if got := calls(); got != "daemon-reload\nenable monopod.service\nrestart monopod.service" {
		t.Errorf("systemctl %s", got)
	}
	unit := clitest.ReadFile(t, d.Path("units", "monopod.service"))
	if !strings.Contains(unit, "ExecStart="+to+" run --config "+d.Path("config.yaml")+"\n") || clitest.ReadFile(t, to) != "the program" {
		t.Error(unit)
	}
	if r := command("", "install", "--path", to, "--no-start"); r.Code != 0 || calls() != "daemon-reload" {
		t.Errorf("again: %+v", r)
	}

	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 1))
	d.Start()
	d.Phase("web", "Running")
	d.End() // as systemctl stop does
	testfiles.Write(t, d.Path("root", "drain.json"), `{"cordoned":true,"drain":{}}`)
	testfiles.Write(t, d.Path("logs", "other"), "")
	testfiles.Write(t, d.Path("root", "config.json"), "{}")
	if err := os.Mkdir(d.Path("logind"), 0o755); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("logind", "99-monopod.conf"), "")
	for stdin, want := range map[string]string{"": "not confirmed", "no\n": "aborted: nothing was removed"} {
		if r := command(stdin, "uninstall"); calls() != "" || !strings.Contains(r.Stderr, want) || r.Code != 1 {
			t.Errorf("%q: %+v", stdin, r)
		}
	}
	if r := command("yes\n", "uninstall"); r.Code != 0 || !strings.Contains(r.Stdout, "removing pod default/web") {
		t.Fatalf("%+v", r)
	}
	if got := calls(); got != "disable --now monopod.service\nkill --signal=HUP systemd-logind.service\ndaemon-reload" {
		t.Errorf("systemctl %s", got)
	}
	if keys, err := d.Fake.List(t.Context()); err != nil || len(keys) > 0 {
		t.Errorf("pods are left: %v, %v", keys, err)
	}
	for _, gone := range []string{"units/monopod.service", "bin/monopod", "root/drain.json", "root/monopod.pid", "run", "logind"} {
		// The stand-in has its program in download; the copy has the same content.
		if _, err := os.Stat(d.Path(gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays: %v", gone, err)
		}
	}
	for _, stays := range []string{"manifests/web.yaml", "config.yaml", "root/config.json", "logs/other", "download/monopod"} {
		if _, err := os.Stat(d.Path(stays)); err != nil {
			t.Error(err)
		}
	}
	if r := command("", "uninstall", "--yes"); r.Code != 0 || calls() != "" {
		t.Errorf("again: %+v", r)
	}
}

// uninstaller runs `uninstall --yes` for a daemon's configuration on a stand-in host, and counts how often a runtime is opened.
func uninstaller(d *clitest.Daemon, h host.Host) func() (clitest.Result, int) {
	return func() (clitest.Result, int) {
		p, opened := d.Program(), 0
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Host, p.Stdout, p.Stderr = h, out, errs
		p.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
			opened++
			return d.Prog.Machine.Open(ctx, cfg, deps)
		}
		code := commands(d.T.Context(), p, []string{"uninstall", "--yes", "--config", d.Path("config.yaml")})
		return clitest.Result{Code: code, Stdout: out.String(), Stderr: errs.String()}, opened
	}
}

func TestUninstallWhereNothingIsInstalledStartsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := clitest.StandInHost(t, d.Dir, false)
	uninstall := uninstaller(d, h)
	for _, dir := range []string{"root", "run"} {
		if err := os.RemoveAll(d.Path(dir)); err != nil {
			t.Fatal(err)
		}
	}
	r, opened := uninstall()
	if r.Code != program.ExitOK || opened != 0 || calls() != "" || r.Stderr != "" || !strings.HasPrefix(r.Stdout, "monopod is not installed here: there is no service, no "+d.Path("root")) {
		t.Errorf("%+v, %d runtimes", r, opened)
	}
	for _, dir := range []string{"root", "run"} {
		if exists(d.Path(dir)) {
			t.Errorf("%s was created", dir)
		}
	}
	// What `install --no-start` leaves is removed without a runtime, too.
	if err := os.MkdirAll(d.Path("root", "applied"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r, opened = uninstall(); r.Code != program.ExitOK || opened != 0 || exists(d.Path("root")) || exists(d.Path("run")) {
		t.Errorf("%+v, %d runtimes", r, opened)
	}
}

func TestUninstallPrintsWhatItDoesAndNoLogOfADaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, _ := clitest.StandInHost(t, d.Dir, false)
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 1))
	d.Start()
	d.Phase("web", "Running")
	d.End()
	r, opened := uninstaller(d, h)()
	if r.Code != program.ExitOK || opened == 0 || r.Stderr != "" || strings.Contains(r.Stdout, "keep running") {
		t.Errorf("%+v, %d runtimes", r, opened)
	}
	if want := "removing pod default/web\nmonopod is uninstalled\n"; !strings.HasSuffix(r.Stdout, want) {
		t.Errorf("it prints %s", r.Stdout)
	}
}

func TestUninstallLeavesTheServiceOfAnotherInstance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string // of the service, which the instance to be uninstalled has --config config.yaml of
		own  bool
	}{
		{[]string{"--config", "config.yaml"}, true},
		{[]string{"--config", "/etc/monopod/other.yaml"}, false},
		{nil, false},
	} {
		d := newDaemon(t)
		h, calls := clitest.StandInHost(t, d.Dir, false)
		if tt.own {
			tt.args[1] = d.Path("config.yaml")
		}
		testfiles.Write(t, d.Path("units", "monopod.service"), systemd.Unit("/usr/local/bin/monopod", tt.args...))
		if err := os.Mkdir(d.Path("logind"), 0o755); err != nil {
			t.Fatal(err)
		}
		testfiles.Write(t, d.Path("logind", "99-monopod.conf"), "")
		r, _ := uninstaller(d, h)()
		if r.Code != program.ExitOK || exists(d.Path("units", "monopod.service")) == tt.own || exists(d.Path("logind", "99-monopod.conf")) == tt.own || (calls() == "") == tt.own {
			t.Errorf("%v: %+v", tt.args, r)
		}
	}
}

func TestUninstallKeepsDataAndStopsADaemonThatRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t)
	child := d.Child(false)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	t.Cleanup(func() { _ = child.Process.Kill() })
	d.Eventually("it answers", func() error {
		_, err := d.Client().Inputs(t.Context())
		return err
	})
	testfiles.Write(t, d.Path("root", "precious"), "")
	p := d.Program()
	p.Host, _ = clitest.StandInHost(t, dir, false)
	p.Machine.Open = d.Prog.Machine.Open
	out := &daemontest.SyncBuffer{}
	p.Stdout, p.Stderr = out, out
	if code := commands(t.Context(), p, []string{"uninstall", "--yes", "--keep-data", "--config", d.Path("config.yaml")}); code != 0 {
		t.Fatalf("code %d: %s", code, out)
	}
	if !strings.Contains(out.String(), "stopping the running monopod (pid ") {
		t.Error(out)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path("root", "precious")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path("run")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestInstallTouchesNothingOfOthers(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := clitest.StandInHost(t, d.Dir, false)
	command := func(args ...string) clitest.Result {
		p := d.Program()
		p.Host, p.Machine.Open = h, d.Prog.Machine.Open
		errs := &daemontest.SyncBuffer{}
		p.Stderr = errs
		return clitest.Result{Code: commands(t.Context(), p, append(args, "--config", d.Path("config.yaml"))), Stderr: errs.String()}
	}
	testfiles.Write(t, d.Path("units", "monopod.service"), "[Unit]\nDescription=mine\n")
	if r := command("install"); r.Code != program.ExitError || !strings.Contains(r.Stderr, "not created by `monopod install`") || calls() != "" {
		t.Errorf("%+v", r)
	}
	if r := command("uninstall", "--yes"); r.Code != program.ExitOK || calls() != "" || clitest.ReadFile(t, d.Path("units", "monopod.service")) == "" {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(d.Path("booted")); err != nil {
		t.Fatal(err)
	}
	if r := command("install"); r.Code != program.ExitError || !strings.Contains(r.Stderr, "systemd not found") {
		t.Errorf("%+v", r)
	}
}

// TestUninstallThatIsCutOffCanBeRepeated: nothing is removed before it is seen what runs.
func TestUninstallThatIsCutOffCanBeRepeated(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, _ := clitest.StandInHost(t, d.Dir, false)
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 1))
	d.Start()
	d.Phase("web", "Running")
	d.End()
	ctx, stop := context.WithCancel(t.Context())
	p := d.Program()
	p.Host, p.Signals = h, program.NewInterrupts(stop)
	p.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		stop()
		return nil, errors.New("runc is not in PATH")
	}
	r := clitest.Commands(commands).Run(ctx, p, "uninstall", "--yes", "--config", d.Path("config.yaml"))
	if r.Code == program.ExitOK || !strings.Contains(r.Stderr, "interrupted; run `monopod uninstall` again to resume") {
		t.Errorf("%+v", r)
	}
	if keys, err := d.Fake.List(t.Context()); err != nil || len(keys) != 1 || !exists(d.Path("root")) {
		t.Errorf("%v, %v", keys, err)
	}
	if r, _ := uninstaller(d, h)(); r.Code != program.ExitOK || exists(d.Path("root")) || !strings.Contains(r.Stdout, "removing pod default/web\n") {
		t.Errorf("again: %+v", r)
	}
}

func TestInstallAndUninstallAreForRoot(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := clitest.StandInHost(t, d.Dir, false)
	for _, command := range []string{"install", "uninstall"} {
		p := d.Program()
		p.Host, p.Euid = h, func() int { return 1000 }
		r := clitest.Commands(commands).Run(t.Context(), p, command, "--config", d.Path("config.yaml"))
		if r.Code != program.ExitError || r.Stderr != "monopod: "+command+" must be started by root; try sudo\n" || calls() != "" || exists(h.Unit()) {
			t.Errorf("%s: %+v", command, r)
		}
	}
}
