use HTTP::Tiny;

print HTTP::Tiny->new(verify_SSL => 1)->post($ARGV[0], {content => $ARGV[1]})->{content};
