package runcdelete

import (
	"path/filepath"
	"strings"
)

// program is the only supported OCI runtime.
const program = "runc"

// parse parses the command line with which go-runc deletes a stopped container: its state directory is id in root. ok is false for any
// other command, and for options that change what runc does.
func parse(args []string) (root, id string, ok bool) {
	end := len(args) - 2
	if end < 1 || filepath.Base(args[0]) != program || args[end] != "delete" {
		return "", "", false
	}
	options := args[1:end]
	if len(options)%2 != 0 {
		return "", "", false
	}
	for i := 0; i < len(options); i += 2 {
		switch options[i] {
		case "--root":
			root = options[i+1]
		case "--log", "--log-format": // nothing is logged
		default:
			return "", "", false
		}
	}
	id = args[end+1]
	return root, id, filepath.IsAbs(root) && validID(id)
}

// idCharacters are those that runc accepts in ids.
const idCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-."

func validID(id string) bool {
	return id != "" && id != "." && id != ".." && strings.Trim(id, idCharacters) == ""
}
