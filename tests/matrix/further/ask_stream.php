<?php
$options = ["http" => ["method" => "POST", "content" => $argv[2]]];
echo @file_get_contents($argv[1], false, stream_context_create($options)), "\n";
