package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/dirlock"
	"monopod/internal/trial"
	"monopod/manifests"
	"monopod/node/localclient"
)

// keeperPatience bounds how long the daemon of kept pods takes to answer.
const keeperPatience = 30 * time.Second

// openSlot locks the first free slot. Before that, it removes the leftovers of killed runs.
func (p Commands) openSlot(ctx context.Context, cfg *config.Loaded) (*Slot, error) {
	if err := p.sweep(ctx, cfg); err != nil {
		p.PrintError(err) // it is in nobody's way
	}
	for n := range maxRuns {
		s := NewSlot(cfg, n)
		if s.Used() {
			continue
		}
		switch err := s.Lock(); {
		case dirlock.IsHeld(err):
		case err != nil:
			return nil, err
		case !s.Used():
			return s, nil
		default: // it was left while the lock was waited for
			s.Release()
		}
	}
	return nil, fmt.Errorf("%d runs already exist", maxRuns)
}

// sweep removes the leftovers of killed runs.
func (p Commands) sweep(ctx context.Context, cfg *config.Loaded) error {
	all, err := Slots(cfg)
	errs := []error{err}
	for _, s := range all {
		if !s.Used() || s.Kept() {
			continue
		}
		if err := s.Lock(); err != nil {
			if !dirlock.IsHeld(err) {
				errs = append(errs, err)
			}
			continue
		}
		if s.Used() && !s.Kept() {
			p.Errs().Printf("monopod: removing leftovers of a killed run (run %d)\n", s.number)
			errs = append(errs, p.sweepSlot(ctx, s))
		}
		s.Release()
	}
	return errors.Join(errs...)
}

// sweepSlot removes a run except its images. The slot must be locked.
func (p Commands) sweepSlot(ctx context.Context, s *Slot) error {
	cfg, err := s.Read()
	if err != nil {
		return err
	}
	g, err := p.newStage(ctx, s, cfg, &Content{})
	if err != nil {
		return err
	}
	return g.remove(ctx)
}

// DropRuns removes the leftovers of killed runs, and the images of free slots.
func (p Commands) DropRuns(ctx context.Context, cfg *config.Loaded) error {
	errs := []error{p.sweep(ctx, cfg)}
	all, err := Slots(cfg)
	errs = append(errs, err)
	for _, s := range all {
		if s.Used() || s.Lock() != nil {
			continue
		}
		if !s.Used() {
			errs = append(errs, os.RemoveAll(s.State), s.Drop())
			_ = os.Remove(filepath.Dir(s.State)) // unless there are others
		}
		s.Release()
	}
	return errors.Join(errs...)
}

// keep ends the run but keeps its pods, and starts a daemon for them.
func (g *stage) keep(ctx context.Context) error {
	documents, err := g.source.documents()
	for i, d := range documents {
		err = errors.Join(err, g.slot.writeFile(filepath.Join("manifests", fmt.Sprintf("%04d.json", i)), d))
	}
	if err = errors.Join(err, g.slot.writeFile(KeptFile, nil)); err != nil {
		return fmt.Errorf("keep run %d: %w", g.slot.number, err)
	}
	err = errors.Join(g.end(), g.log.Close())
	g.slot.Release()
	if err := errors.Join(err, g.p.Machine.Runs.Keep(ctx, g.cfg, filepath.Join(g.slot.Root, runFile))); err != nil {
		return fmt.Errorf("keep run %d (see %s; `monopod down %d` removes it): %w", g.slot.number, g.log.Name(), g.slot.number, err)
	}
	return nil
}

// documents returns the content of the source as manifests, one for each object.
func (s *staged) documents() ([][]byte, error) {
	var all [][]byte
	var errs []error
	add := func(v any) {
		b, err := json.Marshal(v)
		all, errs = append(all, b), append(errs, err)
	}
	for _, o := range slices.Concat(s.set.Objects, s.set.Workloads) {
		add(o.Object)
	}
	for _, p := range s.set.Pods {
		add(p.Object)
	}
	return all, errors.Join(errs...)
}

// KeepRun starts `monopod run` beside this process and returns when it answers.
func KeepRun(ctx context.Context, cfg *config.Loaded, configFile string) error {
	log, err := os.OpenFile(filepath.Join(cfg.RootDirectory, RunLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command("/proc/self/exe", "run", "--config", configFile) // this program, wherever it is and even if it has been replaced meanwhile
	c.Args[0] = os.Args[0]
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, config.EnvPrefix) })
	c.Dir, c.Stdout, c.Stderr = "/", log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }() // it ends with this process, if not before
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keeperPatience)
	defer cancel()
	client := localclient.New(cfg.Socket)
	for {
		if _, err = client.Pods(ctx, ""); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return errors.Join(errors.New("its agent has exited"), err)
		case <-ctx.Done():
			return fmt.Errorf("its agent does not answer: %w", err)
		case <-time.After(daemon.PollInterval / 2):
		}
	}
}

// template returns the pod template of a workload.
func template(w *manifests.Object) *corev1.PodTemplateSpec { return manifests.PodTemplate(w.Object) }

// reservation is a socket that is bound to a port but does not listen. The kernel does not assign the port to other
// processes, and connections are refused until the pod runs.
type reservation int

// Close frees the port.
func (r reservation) Close() error { return unix.Close(int(r)) }

// ReserveAgain reserves the host ports that were assigned to the pods of a kept run, until the returned values are closed. For
// other daemons it does nothing. A port that another process has taken meanwhile still belongs to the pod.
func ReserveAgain(cfg *config.Loaded, log *slog.Logger) (held []io.Closer) {
	if _, err := os.Stat(filepath.Join(cfg.RootDirectory, KeptFile)); err != nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(cfg.StaticPodPath, "*.json"))
	for _, f := range files {
		for _, p := range givenPorts(f) {
			_, r, err := reservePort(p.Protocol, p.HostIP, p.HostPort)
			if err != nil {
				log.Warn("reserve a host port of a pod", "port", p.HostPort, "err", err)
				continue
			}
			held = append(held, r)
		}
	}
	return held
}

// givenPorts returns the assigned host ports of the pod in a file. The source reports files that cannot be read.
func givenPorts(file string) []corev1.ContainerPort {
	pod := &corev1.Pod{}
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &pod.TypeMeta) != nil || pod.Kind != "Pod" || json.Unmarshal(text, pod) != nil {
		return nil
	}
	return trial.GivenHostPorts(pod)
}

// reservePort takes a port on all addresses, or on one; 0: one that is free.
func reservePort(protocol corev1.Protocol, hostIP string, port int32) (int32, reservation, error) {
	kind := unix.SOCK_STREAM
	switch protocol {
	case corev1.ProtocolUDP:
		kind = unix.SOCK_DGRAM
	case corev1.ProtocolTCP, "":
	default:
		return 0, 0, fmt.Errorf("free ports of %s cannot be found", protocol)
	}
	ip := net.ParseIP(hostIP)
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(port)})
	switch v4 := ip.To4(); {
	case v4 != nil:
		at = &unix.SockaddrInet4{Port: int(port), Addr: [4]byte(v4)}
	case ip != nil:
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(port), Addr: [16]byte(ip)}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	if err = unix.Bind(fd, at); err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		return 0, 0, errors.Join(err, unix.Close(fd))
	}
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		return int32(a.Port), reservation(fd), nil
	case *unix.SockaddrInet6:
		return int32(a.Port), reservation(fd), nil
	}
	return 0, 0, errors.Join(errors.New("a socket without a port"), unix.Close(fd))
}
