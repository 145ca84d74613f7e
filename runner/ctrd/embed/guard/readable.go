package guard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// readable reports whether containerd can decode a value. One that it cannot decode makes its lists fail completely. The layout is that of
// core/metadata/buckets.go and core/snapshots/storage/bolt.go in containerd, which is stable, because containerd reads the databases of earlier
// versions.
func readable(buckets []string, key, value []byte) error {
	if len(buckets) == 0 || value == nil {
		return nil
	}
	last := buckets[len(buckets)-1]
	switch name := string(key); {
	case slices.Contains([]string{"labels", "annotations", "children", "parents"}, last):
		return nil // any text
	case last == "extensions", name == "spec", name == "options":
		return decodes(value)
	case name == "createdat", name == "updatedat", name == "expireat":
		return new(time.Time).UnmarshalBinary(value)
	}
	return nil
}

// decodes reports whether a value is a protobuf message of a known type.
func decodes(value []byte) error {
	var a anypb.Any
	if err := proto.Unmarshal(value, &a); err != nil {
		return err
	}
	inJSON := strings.HasPrefix(a.GetTypeUrl(), "monopod.dev/") || strings.HasPrefix(a.GetTypeUrl(), "types.containerd.io/opencontainers/")
	if inJSON && !json.Valid(a.GetValue()) {
		return fmt.Errorf("%.100q is not JSON", a.GetTypeUrl())
	}
	return nil
}
