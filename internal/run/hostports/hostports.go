// Package hostports reserves host ports for the pods of runs.
//
// It must not decide which pods get one: package trial does. It starts no goroutines.
package hostports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/trial"
)

// reservation is a socket that is bound to a port but does not listen. The kernel does not assign the port to other
// processes, and connections are refused until the pod runs.
type reservation int

// Close frees the port.
func (r reservation) Close() error { return unix.Close(int(r)) }

// Again reserves the host ports that were assigned to the pods of a kept run, whose manifests are in a directory, until the returned values
// are closed. A port that another process has bound in the meantime still belongs to the pod.
func Again(dir string, log *slog.Logger) (held []io.Closer) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, f := range files {
		for _, p := range givenPorts(f) {
			_, r, err := Reserve(p.Protocol, p.HostIP, p.HostPort)
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

// Reserve reserves a port on all addresses, or on one; 0 means any free port.
func Reserve(protocol corev1.Protocol, hostIP string, port int32) (int32, io.Closer, error) {
	kind := unix.SOCK_STREAM
	switch protocol {
	case corev1.ProtocolUDP:
		kind = unix.SOCK_DGRAM
	case corev1.ProtocolTCP, "":
	default:
		return 0, nil, fmt.Errorf("free ports of %s cannot be found", protocol)
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
		return 0, nil, err
	}
	if err = unix.Bind(fd, at); err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		return 0, nil, errors.Join(err, unix.Close(fd))
	}
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		return int32(a.Port), reservation(fd), nil
	case *unix.SockaddrInet6:
		return int32(a.Port), reservation(fd), nil
	}
	return 0, nil, errors.Join(errors.New("a socket without a port"), unix.Close(fd))
}

// CloseAll closes all, and joins the errors.
func CloseAll(list []io.Closer) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
