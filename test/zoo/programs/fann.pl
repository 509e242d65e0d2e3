# A network of the FANN library, trained from Perl on random data; a step is an epoch.
use strict;
use warnings;
use AI::FANN qw(:all);

srand 1;
$| = 1;
my $net = AI::FANN->new_standard(20, 60, 40, 1);
my @pairs = map {
	my @x = map { rand(2) - 1 } 1 .. 20;
	(\@x, [$x[0] * $x[1] > 0 ? 1 : 0])
} 1 .. 1500;
my $data = AI::FANN::TrainData->new(@pairs);
while (1) {
	$net->train_epoch($data);
	print "epoch\n";
}
