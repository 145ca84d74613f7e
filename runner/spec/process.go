package spec

import (
	"errors"
	"path"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
)

// buildProcess returns what runs, as whom and with which rights.
func buildProcess(in Input, c *corev1.Container, sec security) (*specs.Process, error) {
	if err := checkUser(in, c, sec); err != nil {
		return nil, err
	}
	if err := checkMapped(in); err != nil {
		return nil, err
	}
	env, vars, err := environment(in, c)
	if err != nil {
		return nil, err
	}
	args, err := arguments(c, in.Image, vars)
	if err != nil {
		return nil, err
	}
	caps, err := capabilities(in.Host.Capabilities, sec)
	if err != nil {
		return nil, err
	}
	oom := oomScoreAdj(in, c)
	return &specs.Process{
		Terminal: c.TTY,

		Args: args,
		Env:  env,
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
func arguments(c *corev1.Container, image ocispec.ImageConfig, vars map[string]string) ([]string, error) {
	command, args := expandAll(c.Command, vars), expandAll(c.Args, vars)
	if len(command) == 0 {
		// ENTRYPOINT [""] is how an image says that it has none.
		if len(image.Entrypoint) != 1 || image.Entrypoint[0] != "" {
			command = image.Entrypoint
		}
		if len(args) == 0 {
			args = image.Cmd
		}
	}
	all := slices.Concat(command, args)
	if len(all) == 0 {
		return nil, errors.New("no command specified")
	}
	return all, nil
}

// expandAll expands each of a list of texts.
func expandAll(texts []string, vars map[string]string) []string {
	out := make([]string, 0, len(texts))
	for _, t := range texts {
		out = append(out, expand(t, vars))
	}
	return out
}

// workingDir returns where the process starts. OCI wants it absolute; images are not always that strict.
func workingDir(c *corev1.Container, image ocispec.ImageConfig) string {
	if c.WorkingDir != "" {
		return path.Join("/", c.WorkingDir)
	}
	return path.Join("/", image.WorkingDir)
}
