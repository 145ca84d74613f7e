package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/host"
	"monopod/internal/program"
	"monopod/internal/setup"
	"monopod/internal/testfiles"
	"monopod/node/systemd"
	"monopod/runner/runtimetest"
)

// standInHost is a machine with systemd in a directory; calls are those of systemctl.
func standInHost(t *testing.T, dir string, whole bool) (h host.Host, calls func() string) {
	t.Helper()
	exe := filepath.Join(dir, "download", "monopod")
	for _, d := range []string{"units", "booted", "download"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testfiles.Write(t, exe, "the program")
	var all []string
	h = host.Host{
		Units: filepath.Join(dir, "units"), Booted: filepath.Join(dir, "booted"), Logind: []string{filepath.Join(dir, "logind")},
		Self: func() (string, bool, error) { return exe, whole, nil }, Unpacked: func() string { return "" },
		Systemctl: func(_ context.Context, args ...string) error {
			all = append(all, strings.Join(args, " "))
			return nil
		},
	}
	return h, func() string {
		defer func() { all = nil }()
		return strings.Join(all, "\n")
	}
}

func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := standInHost(t, d.dir, true)
	to := d.path("bin", "monopod")
	command := func(stdin string, args ...string) result {
		p := d.program()
		p.Host, p.Machine.Open = h, d.prog.Machine.Open
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Stdin, p.Stdout, p.Stderr = strings.NewReader(stdin), out, errs
		code := NewCommands(p).run(t.Context(), append(args, "--config", d.path("config.yaml")))
		return result{out.String(), errs.String(), code}
	}
	if r := command("", "install", "--path", to); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if got := calls(); got != "daemon-reload\nenable monopod.service\nrestart monopod.service" {
		t.Errorf("systemctl %s", got)
	}
	unit := readFile(t, d.path("units", "monopod.service"))
	if !strings.Contains(unit, "ExecStart="+to+" run --config "+d.path("config.yaml")+"\n") || readFile(t, to) != "the program" {
		t.Error(unit)
	}
	if r := command("", "install", "--path", to, "--no-start"); r.code != 0 || calls() != "daemon-reload" {
		t.Errorf("again: %+v", r)
	}

	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 1))
	d.start()
	d.phase("web", "Running")
	d.end() // as systemctl stop does
	testfiles.Write(t, d.path("root", "drain.json"), `{"cordoned":true,"drain":{}}`)
	testfiles.Write(t, d.path("logs", "other"), "")
	testfiles.Write(t, d.path("root", "config.json"), "{}")
	if err := os.Mkdir(d.path("logind"), 0o755); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.path("logind", "99-monopod.conf"), "")
	for stdin, want := range map[string]string{"": "nobody has answered", "no\n": ""} {
		if r := command(stdin, "uninstall"); calls() != "" || !strings.Contains(r.stderr, want) || r.code != map[bool]int{true: 1}[want != ""] {
			t.Errorf("%q: %+v", stdin, r)
		}
	}
	if r := command("yes\n", "uninstall"); r.code != 0 || !strings.Contains(r.stdout, "removing pod default/web") {
		t.Fatalf("%+v", r)
	}
	if got := calls(); got != "disable --now monopod.service\nkill --signal=HUP systemd-logind.service\ndaemon-reload" {
		t.Errorf("systemctl %s", got)
	}
	if keys, err := d.fake.List(t.Context()); err != nil || len(keys) > 0 {
		t.Errorf("pods are left: %v, %v", keys, err)
	}
	for _, gone := range []string{"units/monopod.service", "bin/monopod", "root/drain.json", "root/monopod.pid", "run", "logind"} {
		// The stand-in has its program in download; the copy has the same content.
		if _, err := os.Stat(d.path(gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays: %v", gone, err)
		}
	}
	for _, stays := range []string{"manifests/web.yaml", "config.yaml", "root/config.json", "logs/other", "download/monopod"} {
		if _, err := os.Stat(d.path(stays)); err != nil {
			t.Error(err)
		}
	}
	if r := command("", "uninstall", "--yes"); r.code != 0 || calls() != "" {
		t.Errorf("again: %+v", r)
	}
}

// uninstaller runs `uninstall --yes` for a daemon's configuration on a stand-in host, and counts how often a runtime is opened.
func uninstaller(d *testDaemon, h host.Host) func() (result, int) {
	return func() (result, int) {
		p, opened := d.program(), 0
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Host, p.Stdout, p.Stderr = h, out, errs
		p.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
			opened++
			return d.prog.Machine.Open(ctx, cfg, deps)
		}
		code := NewCommands(p).run(d.t.Context(), []string{"uninstall", "--yes", "--config", d.path("config.yaml")})
		return result{code: code, stdout: out.String(), stderr: errs.String()}, opened
	}
}

func TestUninstallWhereNothingIsInstalledStartsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := standInHost(t, d.dir, false)
	uninstall := uninstaller(d, h)
	for _, dir := range []string{"root", "run"} {
		if err := os.RemoveAll(d.path(dir)); err != nil {
			t.Fatal(err)
		}
	}
	r, opened := uninstall()
	if r.code != program.ExitOK || opened != 0 || calls() != "" || r.stderr != "" || !strings.HasPrefix(r.stdout, "monopod is not installed here: there is no service, no "+d.path("root")) {
		t.Errorf("%+v, %d runtimes", r, opened)
	}
	for _, dir := range []string{"root", "run"} {
		if setup.Exists(d.path(dir)) {
			t.Errorf("%s was created", dir)
		}
	}
	// What `install --no-start` leaves is removed without a runtime, too.
	if err := os.MkdirAll(d.path("root", "applied"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r, opened = uninstall(); r.code != program.ExitOK || opened != 0 || setup.Exists(d.path("root")) || setup.Exists(d.path("run")) {
		t.Errorf("%+v, %d runtimes", r, opened)
	}
}

func TestUninstallPrintsWhatItDoesAndNoLogOfADaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, _ := standInHost(t, d.dir, false)
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 1))
	d.start()
	d.phase("web", "Running")
	d.end()
	r, opened := uninstaller(d, h)()
	if r.code != program.ExitOK || opened == 0 || r.stderr != "" || strings.Contains(r.stdout, "keep running") {
		t.Errorf("%+v, %d runtimes", r, opened)
	}
	if want := "removing pod default/web\nmonopod is uninstalled\n"; !strings.HasSuffix(r.stdout, want) {
		t.Errorf("it prints %s", r.stdout)
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
		h, calls := standInHost(t, d.dir, false)
		if tt.own {
			tt.args[1] = d.path("config.yaml")
		}
		testfiles.Write(t, d.path("units", "monopod.service"), systemd.Unit("/usr/local/bin/monopod", tt.args...))
		if err := os.Mkdir(d.path("logind"), 0o755); err != nil {
			t.Fatal(err)
		}
		testfiles.Write(t, d.path("logind", "99-monopod.conf"), "")
		r, _ := uninstaller(d, h)()
		if r.code != program.ExitOK || setup.Exists(d.path("units", "monopod.service")) == tt.own || setup.Exists(d.path("logind", "99-monopod.conf")) == tt.own || (calls() == "") == tt.own {
			t.Errorf("%v: %+v", tt.args, r)
		}
	}
}

func TestUninstallKeepsDataAndStopsADaemonThatRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), actAsMonopod+"="+d.path("config.yaml"))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	t.Cleanup(func() { _ = child.Process.Kill() })
	d.eventually("it answers", func() error {
		if r := d.cmd("get", "pods"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	testfiles.Write(t, d.path("root", "precious"), "")
	p := d.program()
	p.Host, _ = standInHost(t, dir, false)
	p.Machine.Open = d.prog.Machine.Open
	out := &daemontest.SyncBuffer{}
	p.Stdout, p.Stderr = out, out
	if code := NewCommands(p).run(t.Context(), []string{"uninstall", "--yes", "--keep-data", "--config", d.path("config.yaml")}); code != 0 {
		t.Fatalf("code %d: %s", code, out)
	}
	if !strings.Contains(out.String(), "stopping the monopod that runs (pid ") {
		t.Error(out)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.path("root", "precious")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.path("run")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestInstallTouchesNothingOfOthers(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	h, calls := standInHost(t, d.dir, false)
	command := func(args ...string) result {
		p := d.program()
		p.Host, p.Machine.Open = h, d.prog.Machine.Open
		errs := &daemontest.SyncBuffer{}
		p.Stderr = errs
		return result{code: NewCommands(p).run(t.Context(), append(args, "--config", d.path("config.yaml"))), stderr: errs.String()}
	}
	testfiles.Write(t, d.path("units", "monopod.service"), "[Unit]\nDescription=mine\n")
	if r := command("install"); r.code != program.ExitError || !strings.Contains(r.stderr, "not of `monopod install`") || calls() != "" {
		t.Errorf("%+v", r)
	}
	if r := command("uninstall", "--yes"); r.code != program.ExitOK || calls() != "" || readFile(t, d.path("units", "monopod.service")) == "" {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(d.path("booted")); err != nil {
		t.Fatal(err)
	}
	if r := command("install"); r.code != program.ExitError || !strings.Contains(r.stderr, "systemd not found") {
		t.Errorf("%+v", r)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
