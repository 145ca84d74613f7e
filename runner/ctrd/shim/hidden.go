package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"
)

// AnnotationHiddenProcess is the path of a file with a HiddenProcess, on a file system that loses its content at a power cut. The values
// are never stored in the bundle or in containerd's database.
const AnnotationHiddenProcess = "monopod.dev/hidden-process"

// HiddenProcess is the part of a process that must not be stored.
type HiddenProcess struct {
	Env  []string `json:"env"`
	Args []string `json:"args"`
}

// WriteHiddenProcess writes the file for AnnotationHiddenProcess. Its directory must exist.
func WriteHiddenProcess(path string, p HiddenProcess) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("hidden process: %w", err)
	}
	return os.WriteFile(path, data, 0o600)
}

func readHiddenProcess(path string) (p HiddenProcess, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return p, fmt.Errorf("hidden process: %w", err)
	}
	return p, nil
}

// plainConfig is the name of the bundle's config.json while it is replaced by the complete one.
const plainConfig = "config.json.plain"

// reveal replaces the bundle's config.json by a link to the complete one, which is next to the hidden file. The OCI runtime reads it only
// when it creates the container; the caller must then call conceal.
func reveal(bundle, hidden string) (conceal func() error, err error) {
	if hidden == "" {
		return func() error { return nil }, nil
	}
	p, err := readHiddenProcess(hidden)
	if err != nil {
		return nil, err
	}
	config, plain, full := filepath.Join(bundle, "config.json"), filepath.Join(bundle, plainConfig), hidden+".config"
	data, err := os.ReadFile(config)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	if data, err = complete(data, p); err != nil {
		return nil, err
	}
	if err := os.WriteFile(full, data, 0o600); err != nil {
		return nil, err
	}
	conceal = func() error {
		err := os.Rename(plain, config)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, os.Remove(full))
	}
	if err := os.Rename(config, plain); err != nil {
		return nil, errors.Join(err, os.Remove(full))
	}
	if err := os.Symlink(full, config); err != nil {
		return nil, errors.Join(err, conceal())
	}
	return conceal, nil
}

// complete adds environment and arguments to the JSON of an OCI spec.
func complete(config []byte, p HiddenProcess) ([]byte, error) {
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(config, &spec); err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	process, err := withProcess(spec["process"], p.Env, p.Args)
	if err != nil {
		return nil, err
	}
	spec["process"] = process
	return json.Marshal(spec)
}

// withProcess sets environment and arguments in the JSON of a process; nil arguments keep the existing ones.
func withProcess(process []byte, env, args []string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(process, &fields); err != nil {
		return nil, fmt.Errorf("read process: %w", err)
	}
	for name, list := range map[string][]string{"env": env, "args": args} {
		if list == nil {
			continue
		}
		data, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		fields[name] = data
	}
	return json.Marshal(fields)
}

// revealExec adds the hidden environment to an exec process; variables set by the process itself win.
func revealExec(spec *anypb.Any, hidden string) (*anypb.Any, error) {
	if hidden == "" || spec == nil {
		return spec, nil
	}
	p, err := readHiddenProcess(hidden)
	if err != nil {
		return nil, err
	}
	var process struct {
		Env []string `json:"env"`
	}
	if err := json.Unmarshal(spec.Value, &process); err != nil {
		return nil, fmt.Errorf("read process: %w", err)
	}
	value, err := withProcess(spec.Value, mergeEnv(p.Env, process.Env), nil)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: spec.TypeUrl, Value: value}, nil
}

// mergeEnv returns the variables of both lists without duplicates; those of over win.
func mergeEnv(under, over []string) []string {
	set := map[string]bool{}
	for _, e := range over {
		name, _, _ := strings.Cut(e, "=")
		set[name] = true
	}
	merged := []string{}
	for _, e := range under {
		if name, _, _ := strings.Cut(e, "="); !set[name] {
			merged = append(merged, e)
		}
	}
	return append(merged, over...)
}
