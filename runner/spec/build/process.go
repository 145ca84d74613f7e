package build

import (
	"errors"
	"fmt"
	"path"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/expand"
	"monopod/runner/spec"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/limits"
)

// buildProcess returns what runs, as whom and with which rights.
func buildProcess(in spec.Input, c *corev1.Container, sec security) (*specs.Process, error) {
	if err := checkUser(in, c, sec); err != nil {
		return nil, err
	}
	if err := checkMapped(in); err != nil {
		return nil, err
	}
	env, vars, err := environ.Resolve(in, c)
	if err != nil {
		return nil, err
	}
	args, err := arguments(c, in.Image, vars, &env.Words)
	if err != nil {
		return nil, err
	}
	caps, err := capabilities(in.Host.Capabilities, sec)
	if err != nil {
		return nil, err
	}
	oom := limits.OOMScoreAdj(in, c)
	return &specs.Process{
		Terminal: c.TTY,

		Args: args,
		Env:  env.Entries(),
		Cwd:  workingDir(c, in.Image),
		User: specs.User{UID: in.User.UID, GID: in.User.GID, AdditionalGids: groups(in)},
		// Ambient and inheritable stay empty as in the CRI plugin: capabilities of a user other than root
		// only matter through file capabilities.
		Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: slices.Clone(caps), Permitted: slices.Clone(caps)},
		NoNewPrivileges: sec.noNewPrivileges,
		OOMScoreAdj:     &oom,
	}, nil
}

// arguments combines command and args with the image's ENTRYPOINT and CMD: a command replaces both, args
// replace CMD. References are expanded in what the manifest says only.
func arguments(c *corev1.Container, image ocispec.ImageConfig, vars map[string]string, room *expand.Words) ([]string, error) {
	command, err := expandAll("command", c, vars, room)
	if err != nil {
		return nil, err
	}
	args, err := expandAll("args", c, vars, room)
	if err != nil {
		return nil, err
	}
	if len(command) == 0 {
		var own []string
		// ENTRYPOINT [""] means that an image has no entrypoint.
		if len(image.Entrypoint) != 1 || image.Entrypoint[0] != "" {
			command, own = image.Entrypoint, image.Entrypoint
		}
		if len(args) == 0 {
			args, own = image.Cmd, slices.Concat(own, image.Cmd)
		}
		for _, word := range own {
			if err := room.Add(len(word)); err != nil {
				return nil, fmt.Errorf("entrypoint and command of the image: %w", err)
			}
		}
	}
	all := slices.Concat(command, args)
	if len(all) == 0 {
		return nil, errors.New("no command specified")
	}
	return all, nil
}

// expandAll expands the command or the args of a container.
func expandAll(field string, c *corev1.Container, vars map[string]string, room *expand.Words) ([]string, error) {
	words := c.Command
	if field == "args" {
		words = c.Args
	}
	out := make([]string, 0, len(words))
	for i, t := range words {
		word, err := room.Expand(t, vars)
		if err != nil {
			return nil, fmt.Errorf("container %q: %s[%d]: %w", c.Name, field, i, err)
		}
		out = append(out, word)
	}
	return out, nil
}

// workingDir returns where the process starts. OCI wants it absolute; images are not always that strict.
func workingDir(c *corev1.Container, image ocispec.ImageConfig) string {
	if c.WorkingDir != "" {
		return path.Join("/", c.WorkingDir)
	}
	return path.Join("/", image.WorkingDir)
}
