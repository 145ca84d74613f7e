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

// keeperPatience is how long the agent that looks after kept pods may take to answer.
const keeperPatience = 30 * time.Second

// openSlot takes the first slot in which nobody lives. Before, what runs that were killed have left is removed.
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
	return nil, fmt.Errorf("there are %d runs already", maxRuns)
}

// sweep removes what runs that were killed have left.
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
			p.Errs().Printf("monopod: removing what a run that was killed has left (run %d)\n", s.number)
			errs = append(errs, p.sweepSlot(ctx, s))
		}
		s.Release()
	}
	return errors.Join(errs...)
}

// sweepSlot removes all of a run but its images. The slot must be held.
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

// DropRuns sweeps, and deletes the images of slots in which nobody lives.
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

// keep ends the run and leaves its pods, with an agent of their own that looks after them.
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

// documents are what the source holds, as files that hold the same.
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
			return errors.Join(errors.New("its agent has ended"), err)
		case <-ctx.Done():
			return fmt.Errorf("its agent does not answer: %w", err)
		case <-time.After(daemon.PollInterval / 2):
		}
	}
}

// template is that of the pods of a workload.
func template(w *manifests.Object) *corev1.PodTemplateSpec { return manifests.PodTemplate(w.Object) }

// reservation is a socket that has a port and does not listen on it: the kernel gives the port to nobody else, and
// whoever connects before the pod is there is refused.
type reservation int

// Close gives the port back.
func (r reservation) Close() error { return unix.Close(int(r)) }

// ReserveAgain reserves the ports that the pods of a run that was left were given, for as long as the agent lives that looks
// after them. For another agent it does nothing. A port that somebody has taken meanwhile is the pod's all the same.
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

// givenPorts are those of the pod that a file of a run holds. Files that cannot be read are reported where they are used.
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
