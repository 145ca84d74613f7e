//go:build e2e

package logs

import "testing"

func TestKilledAThousandTimesNothingIsLostOrDoubled(t *testing.T) {
	killUnderLoad(t, 500, Limits{})
}

func TestKilledHundredsOfTimesWhileFilesRotateNothingIsLostOrDoubled(t *testing.T) {
	killUnderLoad(t, 300, rotating())
}
