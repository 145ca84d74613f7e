package build

import (
	"path"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod/runner/spec"
)

// PauseProgram is where process 1 of a shared process namespace finds its program, and what it is called, as in
// Kubernetes.
const PauseProgram = "/pause"

// pauseUser is the unprivileged user of Kubernetes' pause image.
const pauseUser = 65535

// pauseScore is the oom_score_adj of process 1, whose end would end all containers.
const pauseScore = -998

// Pause returns the OCI spec of process 1 of a shared process namespace: program, on the host, in a root file
// system with nothing else, without any rights. in.Container and in.Image are not looked at.
func Pause(in spec.Input, program string) *specs.Spec {
	sec := security{}
	score := max(pauseScore, in.Host.MinOOMScoreAdj)
	l := &specs.Linux{
		Namespaces:    namespaces(in, sec),
		CgroupsPath:   path.Join(podCgroup(in), in.ID),
		Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		MaskedPaths:   maskedPaths(in.Host),
		ReadonlyPaths: readonlyPaths(),
	}
	l.UIDMappings, l.GIDMappings = idMappings(in.Sandbox), idMappings(in.Sandbox)
	for i := range l.Namespaces {
		if l.Namespaces[i].Type == specs.PIDNamespace {
			l.Namespaces[i].Path = "" // it makes the one that the containers join
		}
	}
	return &specs.Spec{
		Version: ociVersion,
		Root:    &specs.Root{Path: rootfs, Readonly: true},
		Process: &specs.Process{
			Args: []string{PauseProgram}, Cwd: "/", NoNewPrivileges: true, OOMScoreAdj: &score,
			User: specs.User{UID: pauseUser, GID: pauseUser}, Capabilities: &specs.LinuxCapabilities{},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=4k"}},
			{Destination: PauseProgram, Type: "bind", Source: program, Options: []string{"bind", "private", "ro"}},
		},
		Linux: l,
	}
}
